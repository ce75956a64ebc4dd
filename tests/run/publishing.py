"""The command line as a clean commit would run it: its cells may be published
(`tests.run.kills`)."""

from runner import cli
from runner.run import loop

SOFTWARE = loop.software


def clean() -> dict[str, object]:
    return {**SOFTWARE(), "git_commit": "0123456789ab"}


if __name__ == "__main__":
    loop.software = clean  # type: ignore[assignment]
    cli.main()
