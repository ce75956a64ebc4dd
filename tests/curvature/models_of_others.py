"""Small models of other packages with random weights, for `tests.curvature.models_table`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if not torch.cuda.is_available():
    # torchvision has no wheel for the CPU in every registry; its models need neither
    for _name in ("nms", "qnms"):
        _signature = "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
        torch.library.define(f"torchvision::{_name}", _signature)


@dataclass
class Case:
    """loss(pick(module(given)), target): pick gives the tensors that the loss uses. nodes:
    submodules."""

    module: nn.Module
    given: Any
    target: Any
    nodes: Sequence[str] = ()
    pick: Callable[[Any], Any] = lambda out: out
    loss: Callable[[Any, Any], Tensor] = F.cross_entropy

    def full_loss(self, out, target):
        return self.loss(self.pick(out), target)


@dataclass
class Model:
    package: str
    make: Callable[[], Case]


def tokens(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def logits(out):
    return out.logits


def first_two(path):
    return [f"{path}.0", f"{path}.1"]


def images(count=3, side=32):
    return torch.randn(count, 3, side, side), torch.arange(count) % 5


def of_images(module, nodes, *pick, side=32):
    x, y = images(side=side)
    for p in module.parameters():  # heads that start at zero
        if p.dim() > 1 and not bool(p.any()):
            nn.init.normal_(p, std=0.1)
    for m in module.modules():  # statistics of a trained network, not those of initialisation
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return Case(module.eval(), x, y, nodes, *pick)


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


def hugging(config, model, **sizes):
    """A model of transformers with random weights."""
    library = import_module("transformers")
    return getattr(library, model)(getattr(library, f"{config}Config")(**sizes)).eval()


def language(module, given, labels, nodes):
    return Case(module, given, labels, nodes, logits, tokens)


GPT2_BLOCKS = first_two("transformer.h")


def gpt2():
    sizes = {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return hugging("GPT2", "GPT2LMHeadModel", **TEXT, **sizes)


def gpt2_plain():
    ids, labels = text()
    return language(gpt2(), {"input_ids": ids}, labels, GPT2_BLOCKS)


def gpt2_masked():
    ids, labels = text()
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    mask[1, 6:] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    return language(gpt2(), given, labels.where(mask == 1, -100), GPT2_BLOCKS)


def gpt2_labels():
    ids, labels = text()
    given = {"input_ids": ids, "labels": ids}
    return Case(gpt2(), given, labels, GPT2_BLOCKS, lambda o: o.loss, lambda f, _: f)


def gpt2_cache():
    module, (ids, labels) = gpt2(), text()
    with torch.no_grad():
        cache = module(ids[:, :3], use_cache=True).past_key_values
    given = {"input_ids": ids[:, 3:], "past_key_values": cache}
    return language(module, given, labels[:, 3:], GPT2_BLOCKS)


def bert():
    ids, _ = text()
    ids[0, 4:] = 0
    given = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    sizes = {**TEXT, **ROPE, "max_position_embeddings": 16, "num_labels": 5}
    module = hugging("Bert", "BertForSequenceClassification", **sizes)
    return Case(module, given, torch.arange(3), first_two("bert.encoder.layer"), logits)


def distilbert():
    ids, _ = text()
    sizes = {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2, "num_labels": 4}
    module = hugging("DistilBert", "DistilBertForTokenClassification", vocab_size=40, **sizes)
    nodes = first_two("distilbert.transformer.layer")
    return language(module, {"input_ids": ids}, torch.randint(4, ids.shape), nodes)


def causal(name, dtype=torch.float32, **options):
    module = hugging(name, f"{name}ForCausalLM", **TEXT, **{**ROPE, **options}).to(dtype)
    ids, labels = text()
    layers = "backbone.layers" if name.startswith("Mamba") else "model.layers"
    return language(module, {"input_ids": ids}, labels, first_two(layers))


def t5():
    (ids, _), (decoder, labels) = text(6), text(5)
    given = {"input_ids": ids, "decoder_input_ids": decoder}
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    start = {"vocab_size": 40, "decoder_start_token_id": 0}
    module = hugging("T5", "T5ForConditionalGeneration", **start, **sizes)
    return language(module, given, labels, ["encoder.block.0", "decoder.block.0"])


def whisper():
    sizes = {"d_model": 16, "num_mel_bins": 8, "decoder_start_token_id": 1}
    sizes |= {"max_source_positions": 10, "max_target_positions": 12}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 24}
    decoder, labels = text(5)
    given = {"input_features": torch.randn(3, 8, 20), "decoder_input_ids": decoder}
    module = hugging("Whisper", "WhisperForConditionalGeneration", **TEXT, **sizes)
    return language(module, given, labels, ["model.encoder.layers.0", "model.decoder.layers.0"])


PATCHES = {**ROPE, "image_size": 16, "patch_size": 8}


def vit():
    module = hugging("ViT", "ViTForImageClassification", **PATCHES, num_labels=5)
    return of_images(module, first_two("vit.layers"), logits, side=16)


def clip():
    x, _ = images(side=16)
    given = {"input_ids": text()[0], "pixel_values": x}
    reads = {**ROPE, **TEXT, "max_position_embeddings": 8}
    module = hugging(
        "CLIP", "CLIPModel", text_config=reads, vision_config=PATCHES, projection_dim=8
    )
    nodes = ["text_model.encoder.layers.0", "vision_model.encoder.layers.0"]
    return Case(module, given, torch.arange(3), nodes, lambda o: o.logits_per_image)


# ---------------------------------------------------------------------- timm and torchvision


def timm_model(name, nodes, **options):
    module = import_module("timm").create_model(name, num_classes=5, **options)
    return of_images(module, nodes)


def timm_resnet():
    resnet = import_module("timm.models.resnet")
    options = {"stem_width": 4, "stem_type": "deep", "avg_down": True, "channels": (8, 8, 12, 12)}
    module = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=5, **options)
    return of_images(module, ["layer1", "layer2", "layer3"])


def timm_mixer():
    sizes = {"img_size": 32, "patch_size": 16, "num_blocks": 2, "embed_dim": 16}
    module = import_module("timm.models.mlp_mixer").MlpMixer(num_classes=5, **sizes)
    return of_images(module, BLOCKS)


def torchvision():
    return import_module("torchvision.models")


def vision_vit():
    module = torchvision().VisionTransformer(32, 16, 2, 2, 16, 24, num_classes=5)
    return of_images(module, ["encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1"])


FEATURES = ["features.1", "features.3"]


def vision_swin():
    m = torchvision()
    swin = m.swin_transformer
    kinds = {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2}
    module = m.SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=5, **kinds)
    return of_images(module, FEATURES)


def vision_convnext():
    m = torchvision()
    block = m.convnext.CNBlockConfig
    return of_images(m.ConvNeXt([block(8, 16, 1), block(16, None, 1)], num_classes=5), FEATURES)


def vision_densenet():
    module = torchvision().DenseNet(4, (2, 2), 8, num_classes=5)
    return of_images(module, ["features.denseblock1", "features.denseblock2"])


def vision_regnet():
    m = torchvision()
    sizes = {"depth": 3, "w_0": 8, "w_a": 4.0, "w_m": 2.0, "group_width": 8, "se_ratio": 0.25}
    params = m.regnet.BlockParams.from_init_params(**sizes)
    nodes = ["trunk_output.block1", "trunk_output.block2"]
    return of_images(m.RegNet(params, num_classes=5), nodes)


def vision_efficientnet(training=False):
    m = torchvision()
    block = m.efficientnet.MBConvConfig
    setting = [block(1, 3, 1, 8, 8, 1, 1, 1), block(4, 3, 2, 8, 12, 1, 1, 1)]
    module = m.EfficientNet(setting, dropout=0.2, num_classes=5, last_channel=24)
    case = of_images(module, ["features.1", "features.2"])
    case.module.train(training)
    return case


def vision_mobilenet():
    m = torchvision()
    block = partial(m.mobilenetv3.InvertedResidualConfig, width_mult=1.0)
    setting = [block(8, 3, 16, 8, True, "RE", 1, 1), block(8, 3, 24, 12, True, "HS", 2, 1)]
    module = m.MobileNetV3(setting, last_channel=24, num_classes=5)
    return of_images(module, ["features.1", "features.2"])


def lraspp():
    build = torchvision().segmentation.lraspp_mobilenet_v3_large
    module = build(weights=None, weights_backbone=None, num_classes=5)
    x, _ = images(2)
    case = of_images(module, ["backbone.4", "classifier.cbr"], lambda o: o["out"])
    return replace(case, given=x, target=torch.randint(5, (2, 32, 32)))


# ---------------------------------------------------------------------- diffusers


def diffusion(kind, *sizes, **options):
    return getattr(import_module("diffusers"), kind)(*sizes, **options).eval()


def sample(out):
    return out.sample


def denoised(module, given, x, nodes):
    return Case(module, given, torch.randn_like(x), nodes, sample, F.mse_loss)


WIDTHS = {"block_out_channels": (8, 12), "layers_per_block": 1, "norm_num_groups": 4}


def unet():
    down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    blocks = {"down_block_types": down, "up_block_types": up, "attention_head_dim": 4}
    module = diffusion("UNet2DModel", 8, 2, 2, **WIDTHS, **blocks)
    x = torch.randn(3, 2, 8, 8)
    given = {"sample": x, "timestep": torch.tensor([3, 50, 700])}
    return denoised(module, given, x, ["conv_in", "mid_block"])


def unet_with_text():
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    blocks = {"down_block_types": down, "up_block_types": up}
    attention = {"attention_head_dim": 2, "cross_attention_dim": 6}
    module = diffusion("UNet2DConditionModel", 8, 2, 2, **WIDTHS, **blocks, **attention)
    x = torch.randn(3, 2, 8, 8)
    given = {"sample": x, "timestep": torch.tensor([3, 50, 700])}
    given["encoder_hidden_states"] = torch.randn(3, 4, 6)
    return denoised(module, given, x, ["conv_in", "mid_block"])


def autoencoder():
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    widths = {"block_out_channels": (4, 8), "layers_per_block": 1, "norm_num_groups": 2}
    options = {**widths, "down_block_types": down, "up_block_types": up, "latent_channels": 2}
    module = diffusion("AutoencoderKL", 1, 1, **options)
    x = torch.randn(3, 1, 8, 8)
    return Case(module, x, x.clone(), ["encoder", "decoder.mid_block"], sample, F.mse_loss)


def dit():
    sizes = {"num_layers": 2, "norm_num_groups": 2, "sample_size": 8, "patch_size": 2}
    module = diffusion("DiTTransformer2DModel", 2, 6, 2, 2, num_embeds_ada_norm=20, **sizes)
    x = torch.randn(3, 2, 8, 8)
    given = {"hidden_states": x, "timestep": torch.tensor([3, 50, 700])}
    given["class_labels"] = torch.arange(3)
    return denoised(module, given, x, first_two("transformer_blocks"))


# ---------------------------------------------------------------------- PyG


def graph():
    edges = torch.randint(9, (2, 24))
    return torch.randn(9, 4), torch.cat([edges, edges.flip(0)], 1), torch.arange(9) % 3


def pyg(name):
    x, edges, y = graph()
    module = getattr(import_module("torch_geometric.nn"), name)(4, 8, 2, 3).eval()
    return Case(module, {"x": x, "edge_index": edges}, y, first_two("convs"))


class OfData(nn.Module):
    """A GCN that takes a data object."""

    def __init__(self):
        super().__init__()
        self.gcn = import_module("torch_geometric.nn").GCN(4, 8, 2, 3)

    def forward(self, data):
        return self.gcn(data.x, data.edge_index)


def pyg_data():
    x, edges, y = graph()
    data = import_module("torch_geometric.data").Data(x=x, edge_index=edges)
    return Case(OfData().eval(), data, y, first_two("gcn.convs"))


HF, TIMM, VISION = "transformers", "timm", "torchvision"
DIFFUSERS, PYG = "diffusers", "torch-geometric"
TINY = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2}
CONVNEXT = {"dims": (8, 8, 12, 12), "depths": (1, 1, 1, 1)}
STAGES, LAYERS, BLOCKS = first_two("stages"), first_two("layers"), first_two("blocks")
GROUPED = {"num_key_value_heads": 2}
SWIN = {"img_size": 32, "window_size": 4, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2)}
MODELS = {
    "GPT-2": Model(HF, gpt2_plain),
    "GPT-2, mask and -100 labels": Model(HF, gpt2_masked),
    "GPT-2, labels inside": Model(HF, gpt2_labels),
    "GPT-2, KV cache": Model(HF, gpt2_cache),
    "BERT, padding": Model(HF, bert),
    "DistilBERT, labels of tokens": Model(HF, distilbert),
    "Llama, grouped queries": Model(HF, partial(causal, "Llama", **GROUPED)),
    "Llama, bfloat16": Model(HF, partial(causal, "Llama", torch.bfloat16, **GROUPED)),
    "Qwen3": Model(HF, partial(causal, "Qwen3", **GROUPED, head_dim=4)),
    "Gemma 2": Model(HF, partial(causal, "Gemma2", **GROUPED, head_dim=4, sliding_window=4)),
    "Mixtral": Model(HF, partial(causal, "Mixtral", **GROUPED, num_local_experts=3)),
    "Mamba": Model(HF, partial(causal, "Mamba", state_size=4)),
    "T5": Model(HF, t5),
    "Whisper": Model(HF, whisper),
    "ViT": Model(HF, vit),
    "CLIP, contrastive": Model(HF, clip),
    "ViT (timm)": Model(TIMM, partial(timm_model, "vit_tiny_patch16_224", BLOCKS, **TINY)),
    "ResNet-D": Model(TIMM, timm_resnet),
    "ConvNeXt (timm)": Model(TIMM, partial(timm_model, "convnext_atto", STAGES, **CONVNEXT)),
    "Swin": Model(TIMM, partial(timm_model, "swin_tiny_patch4_window7_224", LAYERS, **SWIN)),
    "MLP-Mixer": Model(TIMM, timm_mixer),
    "ViT (torchvision)": Model(VISION, vision_vit),
    "Swin V2": Model(VISION, vision_swin),
    "ConvNeXt (torchvision)": Model(VISION, vision_convnext),
    "DenseNet": Model(VISION, vision_densenet),
    "RegNet": Model(VISION, vision_regnet),
    "EfficientNet": Model(VISION, vision_efficientnet),
    "EfficientNet, in training mode": Model(VISION, partial(vision_efficientnet, True)),
    "MobileNetV3": Model(VISION, vision_mobilenet),
    "LRASPP": Model(VISION, lraspp),
    "UNet": Model(DIFFUSERS, unet),
    "UNet with text": Model(DIFFUSERS, unet_with_text),
    "AutoencoderKL": Model(DIFFUSERS, autoencoder),
    "DiT": Model(DIFFUSERS, dit),
    "GCN": Model(PYG, partial(pyg, "GCN")),
    "GAT": Model(PYG, partial(pyg, "GAT")),
    "GIN": Model(PYG, partial(pyg, "GIN")),
    "GCN, Data object": Model(PYG, pyg_data),
}  # fmt: skip
