"""What helps where a cluster cannot be looked at: it depends on what the API server said."""

import pytest

from cli.contract import CommandFailed
from cli.loop import visit
from cluster.errors import ConfigError, Forbidden, Unauthorized, Unavailable

HELPS = {
    Unauthorized: "may have expired: log in again",
    Forbidden: "ask for the rights listed in docs/survey.md",
    Unavailable: "try again when the API server answers",
    ConfigError: "name a kubeconfig with --kubeconfig or in $KUBECONFIG, and one of its contexts with --context",
}


@pytest.mark.parametrize("error", HELPS)
def test_the_remedy_depends_on_the_error_of_the_api_server(error):
    async def look(_):
        raise ExceptionGroup("informers", [error("so it said")])

    with pytest.raises(CommandFailed) as told:
        visit("", "", look, "docs/survey.md")
    assert told.value.message == "so it said"
    assert HELPS[error] in told.value.remedy
