"""Networks: encoders, heads, the policy; and what is done with one: flatten, export, choose its precision."""

from lamarckian.nets.export import export_onnx
from lamarckian.nets.heads import Categorical, Evaluation, Gaussian, Quality, activity, evaluate, mode, sample
from lamarckian.nets.parameters import Entry, FlatParameters, flatten, manifest
from lamarckian.nets.policy import Outputs, Policy, build, example, parameter_count, summary
from lamarckian.nets.precision import Precision, choose
from lamarckian.nets.quality import QHead, QNetwork

__all__ = [
    "Categorical",
    "Entry",
    "Evaluation",
    "FlatParameters",
    "Gaussian",
    "Outputs",
    "Policy",
    "Precision",
    "QHead",
    "QNetwork",
    "Quality",
    "activity",
    "build",
    "choose",
    "evaluate",
    "example",
    "export_onnx",
    "flatten",
    "manifest",
    "mode",
    "parameter_count",
    "sample",
    "summary",
]
