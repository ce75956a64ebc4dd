"""The HSR paper: closed-form gradient of the Wolkowicz–Styan bound."""

from experiments.paper_audit.hsr.derivatives import root_witness
from experiments.paper_audit.hsr.gradients import GRADIENTS
from experiments.paper_audit.hsr.lemmas import LEMMAS
from experiments.paper_audit.papers import read

FORMULAS = (*GRADIENTS, *LEMMAS)
PAPER = read(__file__, FORMULAS, {"hsr.root": root_witness})
