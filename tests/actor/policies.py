"""A linear policy for any role with one vector input, made without PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lamarckian.actor.inference import Model
from lamarckian.mdp import Discrete, Role


def linear(role: Role, seed: int = 0) -> tuple[Model, np.ndarray]:
    """The model, and its flat parameters."""
    [(name, space)] = role.inputs.items()
    generator = np.random.default_rng(seed)
    nodes, initializers, outputs, offsets, flat = [], [], [], {}, []

    def layer(output: str, width: int) -> None:
        weight = generator.normal(0.0, 1.0, (space.size, width)).astype(np.float32)
        offsets[output + ".weight"] = sum(array.size for array in flat)
        flat.append(weight.ravel())
        initializers.append(numpy_helper.from_array(weight, output + ".weight"))
        nodes.append(helper.make_node("MatMul", [name, output + ".weight"], [output]))
        outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, ["b", width]))

    for head_name, head in role.heads.items():
        if isinstance(head, Discrete):
            layer(f"head.{head_name}.logits", head.n)
        else:
            layer(f"head.{head_name}.mean", head.shape[0])
            layer(f"head.{head_name}.log_std", head.shape[0])
    layer("value", len(role.rewards))
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", space.size])]
    graph = helper.make_graph(nodes, "linear", given, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    parameters = np.concatenate(flat)
    return Model(model.SerializeToString(), offsets, parameters.size), parameters
