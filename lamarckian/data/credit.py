"""How much dispatches may send: room is granted before it is used, so that what comes always finds some."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

SILENT_S = 5.0
"""A dispatch that says nothing for so long is gone, until it says something."""

IDLE_S, MAX_IDLE_S = 0.5, 64.0
"""A grant that is not used for so long is offered to the next in turn. Doubled for who used it all the same, at the end of a slow link."""

REMEMBERED = 1000
"""Of dispatches that are gone, so many are known again when they come back."""

_MOST = 2**62


@dataclass
class Account:
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
    told: tuple[int, int] = (0, 0)

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
        self._living: dict[str, Account] = {}
        self._gone: OrderedDict[tuple[str, int], Account] = OrderedDict()

    def __len__(self) -> int:
        """How many dispatches are there."""
        return len(self._living)

    def living(self) -> list[Account]:
        """Of the dispatches that are there."""
        return list(self._living.values())

    def hear(self, name: str, life: int, now: float) -> Account:
        """The account of who said something: one that was gone is known again; another life of the same name takes its place."""
        account = self._living.get(name)
        if account is None or account.life != life:
            if account is not None:
                self._part(account)
            account = self._gone.pop((name, life), None) or Account(name, life)
            account.turn_s, account.idle = now, False
            self._living[name] = account
        account.heard_s = now
        return account

    def covers(self, account: Account, size_bytes: int) -> bool:
        """Whether the next parcel has leave to come. If not, it was sent before word came that there is no leave any more."""
        if size_bytes <= account.grant:
            return True
        account.patience_s = min(2 * account.patience_s, MAX_IDLE_S)
        return False

    def spend(self, account: Account, size_bytes: int, now: float) -> None:
        """Counts its next parcel as taken."""
        self._grant(account, max(0, account.grant - size_bytes))
        account.taken += 1
        account.bytes = min(account.bytes + size_bytes, _MOST)
        account.turn_s, account.idle = now, False

    def share(self, room: int, now: float) -> None:
        """Grants what of `room` bytes is not granted yet, and takes back what is not used."""
        for account in self.living():
            if now - account.heard_s > max(SILENT_S, account.patience_s):
                self._part(account)
            elif account.grant and now - account.turn_s > account.patience_s:
                self._grant(account, 0)
                account.idle = True
        if room <= self.granted:
            return
        idle = sum(account.idle for account in self._living.values())
        units = room // self.unit
        trials = idle if units >= len(self) else min(idle, max(1, units // 2))  # who sends does not wait for all who do not
        share = max(1, (units - trials) // max(1, len(self) - idle)) * self.unit
        trials -= sum(account.idle and account.grant > 0 for account in self._living.values())
        for account in sorted(self._living.values(), key=lambda account: (account.grant, account.turn_s)):
            goal = min(self.unit if account.idle else share, account.grant + room - self.granted)
            if goal > account.grant and goal >= self.unit and not (account.idle and trials <= 0):
                account.turn_s = account.turn_s if account.grant else now
                self._grant(account, goal)
                trials -= account.idle

    def _grant(self, account: Account, size_bytes: int) -> None:
        self.granted += size_bytes - account.grant
        account.grant = size_bytes

    def _part(self, account: Account) -> None:
        self._grant(account, 0)
        del self._living[account.name]
        self._gone[account.name, account.life] = account
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
