"""Plays AWS's own programs against the sandbox: main.py PART…; ends with how many steps passed."""

import sys

import boto
import cli
import enforce
import faults
import lifecycle
import moto_same
import protocol
from play import Play, explain


def terraform(play):
    lifecycle.whole(play, "terraform")


def tofu(play):
    lifecycle.whole(play, "tofu")


def speed(play):
    lifecycle.at_sixty(play, "terraform")
    lifecycle.at_sixty(play, "tofu", ("kubernetes",))


def tokens(play):
    faults.doubles_of_boto(play)
    faults.lists_behind(play)


PARTS = {
    "aws-protocol": protocol.run,
    "aws-boto": boto.run,
    "aws-enforce": enforce.run,
    "aws-tokens": tokens,
    "aws-cli": cli.run,
    "aws-terraform": terraform,
    "aws-tofu": tofu,
    "aws-speed": speed,
    "aws-faults": faults.run_terraform,
    "aws-moto": moto_same.run,
}


def main(names):
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        print(f"error: give parts of {' '.join(PARTS)}, not {' '.join(unknown)}", file=sys.stderr)
        return 2
    play = Play(lambda line: print(line, flush=True))
    for name in names:
        try:
            PARTS[name](play)
        except Exception as error:  # outside of any step: a sandbox that did not start, a program that is missing
            play.failed.append(f"{name}: {explain(error)}")
    return play.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
