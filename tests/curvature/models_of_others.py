"""Small models of other packages with random weights, for `tests.curvature.models_table`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

for _name in (
    () if torch.cuda.is_available() else ("nms", "qnms")
):  # torchvision has no wheel for the CPU in every
    # registry; its models need neither
    torch.library.define(
        f"torchvision::{_name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
    )


@dataclass
class Case:
    """loss(pick(module(given)), target): pick gives the tensors that the loss uses. nodes:
    submodules."""

    module: nn.Module
    given: Any
    target: Any
    pick: Callable[[Any], Any] = lambda out: out
    loss: Callable[[Any, Any], Tensor] = F.cross_entropy
    nodes: Sequence[str] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def full_loss(self, out, target):
        return self.loss(self.pick(out), target)

    def expected(self, output, tangent, target):
        """The curvature of the loss expected over the model's own targets, times a tangent: of
        cross-entropy (diag p - p p^T) / rows, of squared error 2 / entries."""
        if target.is_floating_point():
            return 2 * tangent / target.numel()
        shape = output.shape
        if self.loss is tokens:
            output, tangent, target = output.flatten(0, 1), tangent.flatten(0, 1), target.flatten()
        p, t = (u.movedim(1, -1) for u in (output.softmax(1), tangent))
        bent = p * t - p * (p * t).sum(-1, keepdim=True)
        counts = target != -100
        return (bent * counts.unsqueeze(-1) / counts.sum()).movedim(-1, 1).reshape(shape)


@dataclass
class Model:
    """before: what commit 0511b993 of this package made of it, where it was tried."""

    package: str
    make: Callable[[], Case]
    before: str = "not tried"


def tokens(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def logits(out):
    return out.logits


def images(count=3, side=32, channels=3):
    return torch.randn(count, channels, side, side), torch.arange(count) % 5


def of_images(module, nodes, pick=None, side=32):
    x, y = images(side=side)
    for p in module.parameters():  # heads that start at zero
        if p.dim() > 1 and not bool(p.any()):
            nn.init.normal_(p, std=0.1)
    for m in module.modules():  # statistics of a trained network, not those of initialisation
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return Case(module.eval(), x, y, **({"pick": pick} if pick else {}), nodes=nodes)


# ---------------------------------------------------------------------- transformers

TEXT = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ROPE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def text(length=7):
    ids = torch.randint(3, 40, (3, length + 1))
    return ids[:, :-1], ids[:, 1:]


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(**TEXT, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    ).eval()


def gpt2_plain():
    ids, labels = text()
    return Case(
        gpt2(), {"input_ids": ids}, labels, logits, tokens, ["transformer.h.0", "transformer.h.1"]
    )


def gpt2_masked():
    ids, labels = text()
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    mask[1, 6:] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    return Case(
        gpt2(),
        given,
        labels.where(mask == 1, -100),
        logits,
        tokens,
        ["transformer.h.0", "transformer.h.1"],
    )


def gpt2_labels():
    ids, labels = text()
    nodes = ["transformer.h.0", "transformer.h.1"]
    return Case(
        gpt2(), {"input_ids": ids, "labels": ids}, labels, lambda o: o.loss, lambda f, _: f, nodes
    )


def gpt2_cache():
    module, (ids, labels) = gpt2(), text()
    with torch.no_grad():
        cache = module(ids[:, :3], use_cache=True).past_key_values
    given = {"input_ids": ids[:, 3:], "past_key_values": cache}
    return Case(
        module, given, labels[:, 3:], logits, tokens, ["transformer.h.0", "transformer.h.1"]
    )


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(**TEXT, **ROPE, max_position_embeddings=16, num_labels=5)
    ids, _ = text()
    ids[0, 4:] = 0
    given = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    nodes = ["bert.encoder.layer.0", "bert.encoder.layer.1"]
    return Case(
        BertForSequenceClassification(config).eval(), given, torch.arange(3), logits, nodes=nodes
    )


def distilbert():
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    config = DistilBertConfig(
        vocab_size=40, dim=16, hidden_dim=24, n_layers=2, n_heads=2, num_labels=4
    )
    ids, _ = text()
    nodes = ["distilbert.transformer.layer.0", "distilbert.transformer.layer.1"]
    module = DistilBertForTokenClassification(config).eval()
    return Case(module, {"input_ids": ids}, torch.randint(4, ids.shape), logits, tokens, nodes)


def causal(name, dtype=torch.float32, **options):
    import transformers

    config = getattr(transformers, f"{name}Config")(**TEXT, **{**ROPE, **options})
    module = getattr(transformers, f"{name}ForCausalLM")(config).to(dtype).eval()
    ids, labels = text()
    layers = "backbone.layers" if name.startswith("Mamba") else "model.layers"
    return Case(module, {"input_ids": ids}, labels, logits, tokens, [f"{layers}.0", f"{layers}.1"])


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    config = T5Config(vocab_size=40, decoder_start_token_id=0, **sizes)
    (ids, _), (decoder, labels) = text(6), text(5)
    given = {"input_ids": ids, "decoder_input_ids": decoder}
    nodes = ["encoder.block.0", "decoder.block.0"]
    return Case(T5ForConditionalGeneration(config).eval(), given, labels, logits, tokens, nodes)


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {
        f"{side}_{k}": v
        for side in ("encoder", "decoder")
        for k, v in {"layers": 1, "attention_heads": 2, "ffn_dim": 24}.items()
    }
    config = WhisperConfig(
        **TEXT, **sizes, d_model=16, num_mel_bins=8, max_source_positions=10,
        max_target_positions=12, decoder_start_token_id=1,
    )  # fmt: skip
    decoder, labels = text(5)
    given = {"input_features": torch.randn(3, 8, 20), "decoder_input_ids": decoder}
    nodes = ["model.encoder.layers.0", "model.decoder.layers.0"]
    return Case(
        WhisperForConditionalGeneration(config).eval(), given, labels, logits, tokens, nodes
    )


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(**ROPE, image_size=16, patch_size=8, num_labels=5)
    return of_images(
        ViTForImageClassification(config), ["vit.layers.0", "vit.layers.1"], logits, 16
    )


def clip():
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(
        text_config={**ROPE, **TEXT, "max_position_embeddings": 8},
        vision_config={**ROPE, "image_size": 16, "patch_size": 8}, projection_dim=8,
    )  # fmt: skip
    x, _ = images(side=16)
    given = {"input_ids": text()[0], "pixel_values": x}
    nodes = ["text_model.encoder.layers.0", "vision_model.encoder.layers.0"]
    return Case(
        CLIPModel(config).eval(), given, torch.arange(3), lambda o: o.logits_per_image, nodes=nodes
    )


# ---------------------------------------------------------------------- timm and torchvision


def timm_model(name, nodes, **options):
    import timm

    return of_images(timm.create_model(name, num_classes=5, **options), nodes)


def timm_resnet():
    from timm.models.resnet import BasicBlock, ResNet

    options = {"stem_width": 4, "stem_type": "deep", "avg_down": True, "channels": (8, 8, 12, 12)}
    return of_images(
        ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5, **options), ["layer1", "layer2", "layer3"]
    )


def timm_mixer():
    from timm.models.mlp_mixer import MlpMixer

    return of_images(
        MlpMixer(num_classes=5, img_size=32, patch_size=16, num_blocks=2, embed_dim=16), BLOCKS
    )


def vision(name):
    from torchvision import models as m
    from torchvision.models import convnext, efficientnet, mobilenetv3, regnet, swin_transformer

    if name == "vit":
        layers = ["encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1"]
        return of_images(m.VisionTransformer(32, 16, 2, 2, 16, 24, num_classes=5), layers)
    if name == "swin":
        kinds = {
            "block": swin_transformer.SwinTransformerBlockV2,
            "downsample_layer": swin_transformer.PatchMergingV2,
        }
        net = m.SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=5, **kinds)
        return of_images(net, ["features.1", "features.3"])
    if name == "convnext":
        blocks = [convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 1)]
        return of_images(m.ConvNeXt(blocks, num_classes=5), ["features.1", "features.3"])
    if name == "densenet":
        return of_images(
            m.DenseNet(4, (2, 2), 8, num_classes=5),
            ["features.denseblock1", "features.denseblock2"],
        )
    if name == "regnet":
        params = regnet.BlockParams.from_init_params(
            depth=3, w_0=8, w_a=4.0, w_m=2.0, group_width=8, se_ratio=0.25
        )
        return of_images(
            m.RegNet(params, num_classes=5), ["trunk_output.block1", "trunk_output.block2"]
        )
    if name.startswith("efficientnet"):
        setting = [
            efficientnet.MBConvConfig(e, k, s, c, d, 1, 1, 1)
            for e, k, s, c, d in ((1, 3, 1, 8, 8), (4, 3, 2, 8, 12))
        ]
        net = m.EfficientNet(setting, dropout=0.2, num_classes=5, last_channel=24)
        case = of_images(net, ["features.1", "features.2"])
        case.module.train(name.endswith("training"))
        return case
    bneck = partial(mobilenetv3.InvertedResidualConfig, width_mult=1.0)
    setting = [bneck(8, 3, 16, 8, True, "RE", 1, 1), bneck(8, 3, 24, 12, True, "HS", 2, 1)]
    net = m.MobileNetV3(setting, last_channel=24, num_classes=5)
    return of_images(net, ["features.1", "features.2"])


def lraspp():
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    module = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    x, _ = images(2)
    case = of_images(module, ["backbone.4", "classifier.cbr"], lambda o: o["out"])
    case.given, case.target = x, torch.randint(5, (2, 32, 32))
    return case


# ---------------------------------------------------------------------- diffusers


def squared(prediction, target):
    return F.mse_loss(prediction, target)


def sample(out):
    return out.sample


def unet():
    from diffusers import UNet2DModel

    module = UNet2DModel(
        8, 2, 2, block_out_channels=(8, 12), layers_per_block=1, norm_num_groups=4,
        attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    x = torch.randn(3, 2, 8, 8)
    given = {"sample": x, "timestep": torch.tensor([3, 50, 700])}
    return Case(
        module.eval(), given, torch.randn_like(x), sample, squared, ["conv_in", "mid_block"]
    )


def unet_with_text():
    from diffusers import UNet2DConditionModel

    module = UNet2DConditionModel(
        8, 2, 2, block_out_channels=(8, 12), layers_per_block=1, norm_num_groups=4,
        attention_head_dim=2, cross_attention_dim=6,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    x = torch.randn(3, 2, 8, 8)
    given = {
        "sample": x,
        "timestep": torch.tensor([3, 50, 700]),
        "encoder_hidden_states": torch.randn(3, 4, 6),
    }
    return Case(
        module.eval(), given, torch.randn_like(x), sample, squared, ["conv_in", "mid_block"]
    )


def autoencoder():
    from diffusers import AutoencoderKL

    module = AutoencoderKL(
        1, 1, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(4, 8), layers_per_block=1,
        latent_channels=2, norm_num_groups=2,
    )  # fmt: skip
    x = torch.randn(3, 1, 8, 8)
    return Case(module.eval(), x, x.clone(), sample, squared, ["encoder", "decoder.mid_block"])


def dit():
    from diffusers import DiTTransformer2DModel

    module = DiTTransformer2DModel(
        2, 6, 2, 2, num_layers=2, norm_num_groups=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=20,
    )  # fmt: skip
    x = torch.randn(3, 2, 8, 8)
    given = {
        "hidden_states": x,
        "timestep": torch.tensor([3, 50, 700]),
        "class_labels": torch.arange(3),
    }
    return Case(
        module.eval(),
        given,
        torch.randn_like(x),
        sample,
        squared,
        ["transformer_blocks.0", "transformer_blocks.1"],
    )


# ---------------------------------------------------------------------- PyG


def graph():
    edges = torch.randint(9, (2, 24))
    return torch.randn(9, 4), torch.cat([edges, edges.flip(0)], 1), torch.arange(9) % 3


def pyg(name):
    import torch_geometric.nn as gnn

    x, edges, y = graph()
    module = getattr(gnn, name)(4, 8, 2, 3).eval()
    return Case(module, {"x": x, "edge_index": edges}, y, nodes=["convs.0", "convs.1"])


def pyg_data():
    from torch_geometric.data import Data
    from torch_geometric.nn import GCN

    class OfData(nn.Module):
        def __init__(self):
            super().__init__()
            self.gcn = GCN(4, 8, 2, 3)

        def forward(self, data):
            return self.gcn(data.x, data.edge_index)

    x, edges, y = graph()
    return Case(
        OfData().eval(), Data(x=x, edge_index=edges), y, nodes=["gcn.convs.0", "gcn.convs.1"]
    )


HF, TIMM, VISION, DIFFUSERS, PYG = (
    "transformers",
    "timm",
    "torchvision",
    "diffusers",
    "torch-geometric",
)
RIGHT = "right"
ACTIVATIONS = "right between layers; parameters not finished"
TINY = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2}
CONVNEXT = {"dims": (8, 8, 12, 12), "depths": (1, 1, 1, 1)}
STAGES, LAYERS = ["stages.0", "stages.1"], ["layers.0", "layers.1"]
GROUPED = {"num_key_value_heads": 2}
SWIN = {"img_size": 32, "window_size": 4, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2)}
BLOCKS = ["blocks.0", "blocks.1"]
MODELS = {
    "GPT-2": Model(HF, gpt2_plain, RIGHT),
    "GPT-2, mask and -100 labels": Model(HF, gpt2_masked, "right; between layers refused"),
    "GPT-2, labels inside": Model(HF, gpt2_labels, "Gauss–Newton wrong (zero)"),
    "GPT-2, KV cache": Model(HF, gpt2_cache, "wrong by 26 %"),
    "BERT, padding": Model(HF, bert, "right; false alarm of `verify`"),
    "DistilBERT, labels of tokens": Model(HF, distilbert),
    "Llama, grouped queries": Model(HF, partial(causal, "Llama", **GROUPED), RIGHT),
    "Llama, bfloat16": Model(
        HF, partial(causal, "Llama", torch.bfloat16, **GROUPED), "right; traceback of metrics"
    ),
    "Qwen3": Model(HF, partial(causal, "Qwen3", **GROUPED, head_dim=4)),
    "Gemma 2": Model(HF, partial(causal, "Gemma2", **GROUPED, head_dim=4, sliding_window=4)),
    "Mixtral": Model(
        HF, partial(causal, "Mixtral", **GROUPED, num_local_experts=3), "right by `verify`"
    ),
    "Mamba": Model(HF, partial(causal, "Mamba", state_size=4), RIGHT),
    "T5": Model(HF, t5, "right; `verify` not finished"),
    "Whisper": Model(HF, whisper),
    "ViT": Model(HF, vit, RIGHT),
    "CLIP, contrastive": Model(HF, clip),
    "ViT (timm)": Model(TIMM, partial(timm_model, "vit_tiny_patch16_224", BLOCKS, **TINY), RIGHT),
    "ResNet-D": Model(TIMM, timm_resnet, RIGHT),
    "ConvNeXt (timm)": Model(
        TIMM, partial(timm_model, "convnext_atto", STAGES, **CONVNEXT), ACTIVATIONS
    ),
    "Swin": Model(
        TIMM, partial(timm_model, "swin_tiny_patch4_window7_224", LAYERS, **SWIN), ACTIVATIONS
    ),
    "MLP-Mixer": Model(TIMM, timm_mixer, ACTIVATIONS),
    "ViT (torchvision)": Model(VISION, partial(vision, "vit")),
    "Swin V2": Model(VISION, partial(vision, "swin")),
    "ConvNeXt (torchvision)": Model(VISION, partial(vision, "convnext")),
    "DenseNet": Model(VISION, partial(vision, "densenet")),
    "RegNet": Model(VISION, partial(vision, "regnet"), RIGHT),
    "EfficientNet": Model(VISION, partial(vision, "efficientnet"), ACTIVATIONS),
    "EfficientNet, in training mode": Model(
        VISION, partial(vision, "efficientnet training"), "refused"
    ),
    "MobileNetV3": Model(VISION, partial(vision, "mobilenet"), "Hessian refused"),
    "LRASPP": Model(VISION, lraspp, "Hessian refused"),
    "UNet": Model(DIFFUSERS, unet, RIGHT),
    "UNet with text": Model(DIFFUSERS, unet_with_text),
    "AutoencoderKL": Model(DIFFUSERS, autoencoder),
    "DiT": Model(DIFFUSERS, dit),
    "GCN": Model(PYG, partial(pyg, "GCN"), "right; between layers refused"),
    "GAT": Model(PYG, partial(pyg, "GAT")),
    "GIN": Model(PYG, partial(pyg, "GIN")),
    "GCN, Data object": Model(PYG, pyg_data, "by `verify` only; between layers refused"),
}  # fmt: skip
