"""The HSR paper: closed-form gradient of the Wolkowicz–Styan bound."""

from experiments.paper_audit.hsr import derivatives, gradients, lemmas
from experiments.paper_audit.papers import read

PAPER = read(__file__, (derivatives, gradients, lemmas), {"hsr.root": derivatives.root_witness})
