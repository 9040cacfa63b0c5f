"""How much dispatches may send: room is granted before it is used, so that what comes always finds some."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

SILENT_S = 5.0
"""A dispatch that says nothing for so long is gone, until it says something."""

IDLE_S, MAX_IDLE_S = 0.5, 64.0
"""A grant that is not used for so long is offered to the next in turn. Doubled for who used it all the same, at the end of a slow link."""

REMEMBERED = 1000
"""Of dispatches that are gone, so many are known again when they come back."""

_MOST = 2**62


@dataclass
class Dispatch:
    """What is known of one life of a dispatch.

    taken: its parcels with numbers below it are in, or refused. bytes: theirs, unpacked. grant: bytes that it may still send.
    idle: it lost its last grant unused.
    """

    name: str
    life: int
    taken: int = 0
    bytes: int = 0
    grant: int = 0
    idle: bool = False
    patience_s: float = IDLE_S
    heard_s: float = 0.0
    turn_s: float = 0.0  # when it last got a grant, or used it
    told: tuple[int, int] = field(default=(0, 0))

    @property
    def room(self) -> tuple[int, int]:
        """What it is to know: parcels taken, and bytes that it may have sent in all."""
        return self.taken, min(self.bytes + self.grant, _MOST)


class Credit:
    """Grants of room in whole `unit`s, the bytes of the largest parcel there is.

    Who sends has an equal share of the room; who is idle, one unit. Where there is not a unit for everyone, they have it in turn, those who
    are idle half of the room at most.
    """

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.granted = 0
        self._living: dict[str, Dispatch] = {}
        self._gone: OrderedDict[tuple[str, int], Dispatch] = OrderedDict()

    def __len__(self) -> int:
        """How many dispatches are there."""
        return len(self._living)

    def living(self) -> list[Dispatch]:
        """The dispatches that are there."""
        return list(self._living.values())

    def hear(self, name: str, life: int, now: float) -> Dispatch:
        """The dispatch that said something: one that was gone is known again; another life of the same name takes the place of the last."""
        dispatch = self._living.get(name)
        if dispatch is None or dispatch.life != life:
            if dispatch is not None:
                self._part(dispatch)
            dispatch = self._gone.pop((name, life), None) or Dispatch(name, life)
            dispatch.turn_s, dispatch.idle = now, False
            self._living[name] = dispatch
        dispatch.heard_s = now
        return dispatch

    def covers(self, dispatch: Dispatch, size_bytes: int) -> bool:
        """Whether the next parcel has leave to come. If not, it was sent before word came that there is no leave any more."""
        if size_bytes <= dispatch.grant:
            return True
        dispatch.patience_s = min(2 * dispatch.patience_s, MAX_IDLE_S)
        return False

    def spend(self, dispatch: Dispatch, size_bytes: int, now: float) -> None:
        """Counts its next parcel as taken."""
        self._grant(dispatch, max(0, dispatch.grant - size_bytes))
        dispatch.taken += 1
        dispatch.bytes = min(dispatch.bytes + size_bytes, _MOST)
        dispatch.turn_s, dispatch.idle = now, False

    def share(self, room: int, now: float) -> None:
        """Grants what of `room` bytes is not granted yet, and takes back what is not used."""
        for dispatch in self.living():
            if now - dispatch.heard_s > max(SILENT_S, dispatch.patience_s):
                self._part(dispatch)
            elif dispatch.grant and now - dispatch.turn_s > dispatch.patience_s:
                self._grant(dispatch, 0)
                dispatch.idle = True
        if room <= self.granted:
            return
        idle = sum(dispatch.idle for dispatch in self._living.values())
        units = room // self.unit
        trials = idle if units >= len(self) else min(idle, max(1, units // 2))  # who sends does not wait for all who do not
        share = max(1, (units - trials) // max(1, len(self) - idle)) * self.unit
        trials -= sum(dispatch.idle and dispatch.grant > 0 for dispatch in self._living.values())
        for dispatch in sorted(self._living.values(), key=lambda dispatch: (dispatch.grant, dispatch.turn_s)):
            goal = min(self.unit if dispatch.idle else share, dispatch.grant + room - self.granted)
            if goal > dispatch.grant and goal >= self.unit and not (dispatch.idle and trials <= 0):
                dispatch.turn_s = dispatch.turn_s if dispatch.grant else now
                self._grant(dispatch, goal)
                trials -= dispatch.idle

    def _grant(self, dispatch: Dispatch, size_bytes: int) -> None:
        self.granted += size_bytes - dispatch.grant
        dispatch.grant = size_bytes

    def _part(self, dispatch: Dispatch) -> None:
        self._grant(dispatch, 0)
        del self._living[dispatch.name]
        self._gone[dispatch.name, dispatch.life] = dispatch
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
