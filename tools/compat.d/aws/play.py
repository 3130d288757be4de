"""Steps, what they assert, and how they went."""

import time
import traceback

from botocore.exceptions import ClientError


class Wrong(AssertionError):
    """Something is not as it should be; the text says what."""


class Play:
    """Runs steps and counts them. In a chained suite a step builds on those before it, so after a failure the rest is not run."""

    def __init__(self, out=print):
        self.out = out
        self.passed = 0
        self.failed = []
        self.not_run = 0
        self.title = ""
        self.chained = self.broken = False

    def suite(self, title, chained=False):
        self.title, self.chained, self.broken = title, chained, False
        self.out(title)

    def step(self, name):
        """As a decorator: runs the function at once."""

        def run(body):
            if self.broken:
                self.not_run += 1
                self.out(f"  skip  {name}")
                return
            began = time.monotonic()
            try:
                body()
            except Exception as error:  # whatever it is, the other steps go on
                self.failed.append(f"{self.title}: {name}")
                self.broken = self.chained
                self.out(f"  FAIL  {name}: {explain(error)}")
            else:
                self.passed += 1
                self.out(f"  ok    {name} ({time.monotonic() - began:.1f} s)")

        return run

    def end(self):
        """Prints the sum; the exit status."""
        if self.not_run:
            self.out(f"{self.not_run} not run, because of a failure before them")
        for name in self.failed:
            self.out(f"failed: {name}")
        self.out(f"{self.passed} passed, {len(self.failed)} failed")
        return 1 if self.failed or not self.passed else 0


def explain(error):
    if isinstance(error, (Wrong, ClientError)):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"


def want(ok, message):
    if not ok:
        raise Wrong(message)


def same(what, got, expected):
    want(got == expected, f"{what} is {got!r}, not {expected!r}")


def refused(code, call, *args, **kwargs):
    """The call must fail with this code, or one of these; returns the error's answer."""
    codes = [code] if isinstance(code, str) else code
    try:
        call(*args, **kwargs)
    except ClientError as error:
        got = error.response["Error"].get("Code")
        want(got in codes, f"refused with {got} ({error.response['Error'].get('Message')}), not {' or '.join(codes)}")
        return error.response
    raise Wrong(f"was not refused with {' or '.join(codes)}")


def until(what, ask, within=60.0, pause=0.1):
    """Asks again and again until the answer is truthy; that answer."""
    deadline = time.monotonic() + within
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Wrong(f"waited {within:.0f} s for {what}")
        time.sleep(pause)
