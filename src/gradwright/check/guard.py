"""What a check says, where a mode may be right to refuse, and a kink may be near."""

from dataclasses import replace

from ..errors import GradwrightError
from .case import Case, Check, Verdict, plain_fault
from .derivatives import DERIVATIVES, forward, reverse, second
from .frameworks import NotOffered

# What frameworks say where a rule is for the first reverse derivative alone, and they keep to it.
_REFUSALS = (
    "can't apply forward-mode autodiff (jvp) to a custom_vjp",
    "Gradient explicitly disabled",
)


def guarded(check: Check, case: Case) -> Verdict:
    """What a check says; an error that a mode was right to raise is no fault."""
    try:
        verdict = check(case)
        if verdict.status == "fault" and check in DERIVATIVES.values():
            again = check(replace(case, point=case.point.finer))
            if again.status != "fault":
                return Verdict("kink", "measured by large and by small steps, it is not the same")
        return verdict
    except NotOffered as error:
        return Verdict("refused", error.what)
    except GradwrightError as error:
        return Verdict("refused", f"{error.what}; instead: {error.instead}")
    except Exception as error:  # a framework's own, or one of the function's
        if (ours := _refusal_in(error)) is not None:
            return Verdict("refused", f"{ours.what}; instead: {ours.instead}")
        first_line = next(iter(str(error).strip().splitlines()), "")
        text = f"{type(error).__name__}: {first_line[:200]}"
        if check is not reverse and any(words in str(error) for words in _REFUSALS):
            return Verdict("refused", text)
        is_extra = check in (forward, second) or case.mode is not case.base
        if case.subject.rule == "gradient" and is_extra:
            return Verdict("refused", text)  # nobody has to offer these, and it is said aloud
        return plain_fault("error", text)


def _refusal_in(error: BaseException | None) -> GradwrightError | None:
    """Our own error, inside of what a framework made of it."""
    while error is not None and not isinstance(error, GradwrightError):
        error = error.__cause__ or error.__context__
    return error
