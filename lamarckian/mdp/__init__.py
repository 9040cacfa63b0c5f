"""The asynchronous MDP: the interface between games and everything that plays them."""

from lamarckian.mdp.asynchronous import AsynchronousMatch, Rules
from lamarckian.mdp.batched import Batched, BatchedMDP, Bot, BotAgent, Observations, Saves, Steps
from lamarckian.mdp.interface import MDP, Action, Agent, Controller, Match, Observation, Recorder, Result, Step
from lamarckian.mdp.loop import Handoff, Loop, tick
from lamarckian.mdp.play import spar, train
from lamarckian.mdp.spaces import ArraySpec, Continuous, Discrete, Head, Image, Input, Role, Units, Vector
from lamarckian.mdp.synchronous import SynchronousMatch, Turns

__all__ = [
    "MDP",
    "Action",
    "Agent",
    "ArraySpec",
    "AsynchronousMatch",
    "Batched",
    "BatchedMDP",
    "Bot",
    "BotAgent",
    "Continuous",
    "Controller",
    "Discrete",
    "Handoff",
    "Head",
    "Image",
    "Input",
    "Loop",
    "Match",
    "Observation",
    "Observations",
    "Recorder",
    "Result",
    "Role",
    "Rules",
    "Saves",
    "Step",
    "Steps",
    "SynchronousMatch",
    "Turns",
    "Units",
    "Vector",
    "spar",
    "tick",
    "train",
]
