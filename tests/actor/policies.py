"""A linear policy for any role with one vector input, made without PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lamarckian.actor.inference import Model
from lamarckian.mdp import Discrete, Role


def linear(role: Role, seed: int = 0, recurrent: bool = False, quality: bool = False) -> tuple[Model, np.ndarray]:
    """The model, and its flat parameters. recurrent: of the sum of what it saw in the match, older things at half the weight each step.

    quality: its discrete heads say how good each action is, and that one in five is to be any.
    """
    [(name, space)] = role.inputs.items()
    generator = np.random.default_rng(seed)
    nodes, initializers, outputs, offsets, flat = [], [], [], {}, []

    seen, state = name, {}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", space.size])]
    if recurrent:
        seen, state = "after.sum", {"sum": (space.size,)}
        given.append(helper.make_tensor_value_info("state.sum", TensorProto.FLOAT, ["b", space.size]))
        outputs.append(helper.make_tensor_value_info(seen, TensorProto.FLOAT, ["b", space.size]))
        initializers.append(numpy_helper.from_array(np.float32(0.5), "half"))
        nodes += [helper.make_node("Mul", ["state.sum", "half"], ["old"]), helper.make_node("Add", ["old", name], [seen])]

    def layer(output: str, width: int) -> None:
        weight = generator.normal(0.0, 1.0, (space.size, width)).astype(np.float32)
        offsets[output + ".weight"] = sum(array.size for array in flat)
        flat.append(weight.ravel())
        initializers.append(numpy_helper.from_array(weight, output + ".weight"))
        nodes.append(helper.make_node("MatMul", [seen, output + ".weight"], [output]))
        outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, ["b", width]))

    for head_name, head in role.heads.items():
        if isinstance(head, Discrete) and quality:
            layer(f"head.{head_name}.q", head.n)
            layer(f"{head_name}.none", 1)
            initializers.append(numpy_helper.from_array(np.float32([0.0]), f"{head_name}.zero"))
            initializers.append(numpy_helper.from_array(np.float32([0.2]), f"{head_name}.fifth"))
            nodes.append(helper.make_node("Mul", [f"{head_name}.none", f"{head_name}.zero"], [f"{head_name}.nothing"]))
            nodes.append(helper.make_node("Add", [f"{head_name}.nothing", f"{head_name}.fifth"], [f"head.{head_name}.epsilon"]))
            outputs[-1] = helper.make_tensor_value_info(f"head.{head_name}.epsilon", TensorProto.FLOAT, ["b", 1])
        elif isinstance(head, Discrete):
            layer(f"head.{head_name}.logits", head.n)
        else:
            layer(f"head.{head_name}.mean", head.shape[0])
            layer(f"head.{head_name}.log_std", head.shape[0])
    layer("value", len(role.rewards))
    graph = helper.make_graph(nodes, "linear", given, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    parameters = np.concatenate(flat)
    return Model(model.SerializeToString(), offsets, parameters.size, state), parameters
