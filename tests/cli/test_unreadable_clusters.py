"""The remedy for an unreadable cluster depends on the error of the connection or the API server; a throttled list is retried."""

import pytest

from analysis.errors import Failed
from analysis.loading import read_cluster
from cli.loop import visit
from cluster.errors import ApiError, ConfigError, Forbidden, Gone, Throttled, Unauthorized, Unavailable
from cluster.protocol import ListPage, Unreadable
from cluster.resources import PODS
from tests.allocator.service.sidecar import loaded, pod

REMEDIES = {
    Unauthorized: "may have expired: log in again",
    Forbidden: "ask for the rights listed in docs/commands.md#drawbridge-survey",
    Throttled: "look for clients that send too many requests",
    Unavailable: "try again when the API server answers",
    ConfigError: "name a kubeconfig with --kubeconfig or in $KUBECONFIG, and one of its contexts with --context",
}


@pytest.mark.parametrize("error", REMEDIES)
def test_the_remedy_for_an_unreadable_cluster_depends_on_the_error(error):
    async def look(_):
        raise ExceptionGroup("informers", [error("so it said")])

    with pytest.raises(Failed) as raised:
        visit("", "", look, "docs/commands.md#drawbridge-survey")
    assert raised.value.message == "so it said"
    assert REMEDIES[error] in raised.value.remedy


def test_a_server_error_has_a_remedy_about_etcd():
    async def look(_):
        raise ApiError("etcdserver: mvcc: database space exceeded", status=500)

    with pytest.raises(Failed) as raised:
        visit("", "", look, "docs/commands.md#drawbridge-survey")
    assert "at etcd, which may have no space (NOSPACE)" in raised.value.remedy


async def test_an_unreadable_object_is_reported_once_after_an_expired_page_token():
    unreadable = Unreadable("default", "bad", "1", "not a pod")
    pages = [ListPage([], "1", more="token", unreadable=(unreadable,)), Gone("expired"), ListPage([], "2", unreadable=(unreadable,))]  # fmt: skip
    cluster = loaded()
    real_list = cluster.list

    async def list_pages(resource, *args, **kwargs):
        if resource.id != PODS.id:
            return await real_list(resource, *args, **kwargs)
        page = pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    cluster.list = list_pages
    unread = (await read_cluster(cluster)).unread
    assert [entry.kind for entry in unread if entry.kind.startswith("Pod ")] == ["Pod bad"]


async def test_a_list_of_pods_is_retried_after_throttling_once():
    """A list is throttled once, and then answered. Later every list is throttled, and reading the cluster fails."""
    cluster, throttled_count = loaded(pod("p")), 0
    real_list = cluster.list

    async def list_or_throttle(resource, *args, **kwargs):
        nonlocal throttled_count
        if resource.id == PODS.id and throttled_count != 1:
            throttled_count += 1
            raise Throttled("too many requests", retry_after=0.0)
        return await real_list(resource, *args, **kwargs)

    cluster.list = list_or_throttle
    assert list((await read_cluster(cluster)).pods) == ["default/p"]
    throttled_count = 2
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await read_cluster(cluster)
