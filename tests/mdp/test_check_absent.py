"""The checker against games in which a role that is late or gone holds up the others, or is not told."""

from __future__ import annotations

from lamarckian.mdp import tick
from lamarckian.mdp.check import check_mdp
from tests.mdp.test_check import refused
from tests.mdp.toys import Count, CountMatch, CountRules


class Waiting(CountMatch):
    """Waits for every role, and says so or does not."""

    def __init__(self, rules, roles, honest, forgiving):
        super().__init__(rules, roles)
        self.honest, self.forgiving = honest, forgiving

    async def run(self):
        seats = list(self.controllers.values())
        while not self.rules.terminated:
            while not all(seat.waits or (self.forgiving and not seat.online) for seat in seats):
                await tick()
            for seat in seats:
                seat.offer(self.rules.tick)
            while not all(seat._queue or (self.forgiving and not seat.online) for seat in seats):
                await tick()
            rewards = self.rules.advance({seat.name: seat.take(self.rules.tick) for seat in seats})
            for seat in seats:
                seat.credit(rewards[seat.name])
        for seat in seats:
            seat.end(True, False)


class WaitingGame(Count):
    honest = forgiving = True

    def start(self, seed):
        match = Waiting(CountRules(self.ticks, seed), self.roles, self.honest, self.forgiving)
        match.waits = self.honest
        return match


def test_a_match_that_waits_and_says_so_is_in_order():
    check_mdp(WaitingGame(), steps=30)


class Dishonest(WaitingGame):
    honest = False


class Unforgiving(WaitingGame):
    forgiving = False


def test_a_match_that_waits_without_saying_so_or_even_for_roles_that_left():
    refused(Dishonest(), "role 'left' did not answer for 50 ticks, and role 'right' got no step meanwhile. Give the late role")
    refused(Unforgiving(), "role 'left' left, and role 'right' waits for ever: a match must go on without roles that leave", steps=5)


class Uncounted(Count):
    def start(self, seed):
        match = super().start(seed)
        for seat in match.controllers.values():
            seat.take = self.taker(seat, seat.take)
        return match

    def taker(self, seat, take):
        def uncounted(now):
            action = take(now)
            seat._missed = 0
            return action

        return uncounted


def test_missed_ticks_that_are_not_counted():
    refused(Uncounted(), "role 'left' did not answer for 50 ticks, but its step says `missed` 0", steps=200)
