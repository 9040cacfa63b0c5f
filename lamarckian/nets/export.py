"""A policy as an ONNX graph, for inference without torch."""

from __future__ import annotations

import copy
import io
import warnings

import onnx
import torch
from torch import Tensor, nn

from lamarckian.errors import RecipeError
from lamarckian.nets.heads import GaussianHead
from lamarckian.nets.policy import Outputs, Policy, example

OPSET = 17


def export_onnx(policy: Policy) -> bytes:
    """The graph of `policy`, its batch axis of any size.

    | name | | |
    | --- | --- | --- |
    | inputs | `<input>`, `<units>.valid`, `state.<name>` | as `Role.arrays()` says, images in uint8 |
    | outputs | `head.<head>.logits`, or `head.<head>.mean` and `.log_std`; `value`; `after.<name>`: the state after it | float32, raw |
    | initializers | those of `policy.named_parameters()` | a new version replaces them |
    | metadata | `squashed` | the names of the squashed heads, parted by spaces |
    """
    device = next(policy.parameters()).device
    inputs = {name: x.to(device) for name, x in example(policy.role, 2).items()}
    states = {f"state.{name}": torch.zeros(2, *spec.shape, device=device) for name, spec in policy.state.items()}
    names = [*inputs, *states]
    outputs = [name for name, _ in _named(policy(inputs, _state(states)))]
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # torch's newer exporter folds parameters into constants, so that they could not be replaced by name.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Flat(_told_apart(policy), list(inputs), list(states)),
            (*inputs.values(), *states.values()),
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            input_names=names,
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in [*names, *outputs]},
            do_constant_folding=False,
            opset_version=OPSET,
        )
    model = onnx.load_from_string(buffer.getvalue())
    _restore(model.graph, policy)
    squashed = [name for name, head in policy.heads.items() if isinstance(head, GaussianHead) and head.squashed]
    onnx.helper.set_model_props(model, {"squashed": " ".join(squashed)})
    return model.SerializeToString()


class _Flat(nn.Module):
    """Arguments and results one by one, as the exporter wants them."""

    def __init__(self, policy: Policy, inputs: list[str], states: list[str]) -> None:
        super().__init__()
        self.policy, self._inputs, self._states = policy, inputs, states

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = dict(zip(self._inputs, tensors, strict=False))
        states = dict(zip(self._states, tensors[len(inputs) :], strict=True))
        return tuple(x for _, x in _named(self.policy(inputs, _state(states))))


def _state(states: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("state."): x for name, x in states.items()}


def _named(outputs: Outputs) -> list[tuple[str, Tensor]]:
    heads = [(f"head.{name}.{field}", x) for name, head in outputs.heads.items() for field, x in head._asdict().items()]
    return [*heads, ("value", outputs.value), *((f"after.{name}", x) for name, x in outputs.state.items())]


def _told_apart(policy: Policy) -> Policy:
    """A copy in which no two parameters are equal: the exporter makes one of those that are, as biases are at first."""
    twin = copy.deepcopy(policy)
    for index, parameter in enumerate(twin.parameters()):
        parameter.data = torch.full_like(parameter, index)
    return twin


def _restore(graph: onnx.GraphProto, policy: Policy) -> None:
    """Gives the initializers the parameters' names and values."""
    parameters = {f"policy.{name}": (name, parameter) for name, parameter in policy.named_parameters()}
    for initializer in graph.initializer:
        if initializer.name not in parameters:
            raise RecipeError(
                f"the network has '{initializer.name.removeprefix('policy.')}', which is no parameter: it would not travel with versions. "
                "Make it a parameter, or a constant of the code"
            )
        name, parameter = parameters[initializer.name]
        initializer.CopyFrom(onnx.numpy_helper.from_array(parameter.detach().cpu().numpy(), name))
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in parameters:
                node.input[index] = parameters[name][0]
