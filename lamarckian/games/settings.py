"""Settings of games and bots: the annotated keyword arguments of a constructor, checked where they are given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError, validate_call

from lamarckian.errors import GameError


def checked(constructor: Callable[..., None]) -> Callable[..., None]:
    """Decorates an `__init__`: arguments that its annotations do not allow raise `GameError` naming setting, value and limits."""
    validated = validate_call(constructor)
    allowed = list(inspect.signature(constructor).parameters)[1:]

    @functools.wraps(constructor)
    def check(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            validated(self, *args, **kwargs)
        except ValidationError as error:
            faults = [f"'{'.'.join(map(str, fault['loc']))}' is {fault['input']!r}: {fault['msg']}" for fault in error.errors()]
            raise GameError(f"{type(self).__name__}: setting {'; '.join(faults)}. Settings: {', '.join(allowed) or 'none'}") from None

    return check
