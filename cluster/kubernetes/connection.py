"""Bytes to and from an API server. The official client handles kubeconfig, contexts, exec credentials, the pod's rotated token,
proxies and TLS; bodies pass undecoded. This is the only module that calls the client and translates its exceptions.

A 401 means that credentials have expired (a rotated token file, an exec credential): they are loaded again, once, and the request is
repeated. Requests in flight, including watches, keep the old credentials.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from cluster.errors import ClusterError, ConfigError, Unavailable, from_response, map_exceptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

    Load = Callable[[], Awaitable["Access"]]

Query = list[tuple[str, str]]
# Larger than any single object: etcd's limit is 1.5 MiB by default, and rarely set to 8.
LARGEST_ANSWER = 64 << 20
CONNECT_SECONDS = 10.0
# Seconds between two renewals of credentials: a credential program must not run for every refused request.
RENEWAL_SECONDS = 10.0
# Bytes of an error that are read; a proxy's error page may be longer.
_ERROR_BODY = 64 * 1024
_LONGEST_ERROR = 300  # characters of the library's messages about a credential program
_AGENT = "drawbridge"
_IMPERSONATION = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid"}


async def _beginning(content: aiohttp.StreamReader, limit: int) -> bytes:
    """Read up to `limit` bytes. A single `read` returns only the bytes that have arrived."""
    data = bytearray()
    while len(data) < limit and (piece := await content.read(limit - len(data))):
        data += piece
    return bytes(data)


def _unavailable(error: Exception) -> ClusterError:
    if isinstance(error, TimeoutError):
        return Unavailable(f"the API server did not answer in time: {str(error) or type(error).__name__}")
    return Unavailable(f"the connection to the API server failed: {str(error) or type(error).__name__}")


def _no_url(error: Exception) -> ClusterError:
    return ConfigError(f"the address of the API server is not a URL that begins with https:// or http://: {error}")


_FOREIGN: dict[type[Exception], Callable[[Exception], ClusterError]] = {
    **dict.fromkeys((aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError), _no_url),
    aiohttp.ClientError: _unavailable,
    TimeoutError: _unavailable,
    OSError: _unavailable,
    ConfigException: lambda error: ConfigError(str(error)),
}


class TooLarge(Unavailable):
    """A response larger than the caller's limit."""


class Access(NamedTuple):
    configuration: Configuration
    headers: dict[str, str] = {}


class Call(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Query = []
    body: Any = None
    content_type: str = "application/json"
    # Watches are not compressed: the server would compress each event separately, at the cost of encoding it.
    accept_encoding: str = "gzip"
    accept: str = "application/json"


class _CredentialSession:
    """A client with one set of credentials. It is closed once the credentials are replaced and no request uses it."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.users = 0


class Connection:
    def __init__(self, load: Load, *, renewal_seconds: float = RENEWAL_SECONDS) -> None:
        """Load credentials with `load`, and again when they are refused, at most once in `renewal_seconds`."""
        self._load = load
        self._renewal_seconds = renewal_seconds
        self._current: _CredentialSession | None = None
        self._retired: set[_CredentialSession] = set()
        self._renewed_at = -renewal_seconds
        self._lock = asyncio.Lock()
        self.date = ""  # the Date of the last response

    async def call(self, request: Call, *, seconds: float = 60.0, most: int = LARGEST_ANSWER) -> bytes:
        """Send a request and read the response; raise an ApiError for a failure, a timeout, or more than `most` bytes."""
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        async with self._open_response(request, limits) as response:
            with map_exceptions(_FOREIGN):
                data = await _beginning(response.content, most + 1)
        if len(data) > most:
            raise TooLarge(f"the answer to {request.method} {request.path} has more than {most} bytes")
        return data

    @asynccontextmanager
    async def stream(self, request: Call, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a streamed response; after `idle` seconds without a byte the peer counts as dead."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle)
        async with self._open_response(request, limits) as response:
            chunks = _chunks(response)
            try:
                yield chunks
            finally:
                await chunks.aclose()

    @property
    def certificate(self) -> str:
        """The file of the client certificate last used; "" if there is none."""
        return str(self._current.client.configuration.cert_file or "") if self._current is not None else ""

    async def close(self) -> None:
        if self._current is not None:
            self._retired.add(self._current)
            self._current = None
        while self._retired:
            await _close(self._retired.pop().client)

    @asynccontextmanager
    async def _open_response(
        self, request: Call, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            session = await enter(self._session())
            response = await enter(_send(session.client, request, limits))
            status = response.status
            if status == HTTPStatus.UNAUTHORIZED and await self._renew(session):
                response.release()
                session = await enter(self._session())
                response = await enter(_send(session.client, request, limits))
                status = response.status
            self.date = response.headers.get("Date", "")
            if status >= HTTPStatus.BAD_REQUEST:
                with map_exceptions(_FOREIGN):
                    text = await _beginning(response.content, _ERROR_BODY)
                # API servers do not send Retry-After as a date; if it is one, the default applies.
                retry_after = response.headers.get("Retry-After", "")
                raise from_response(status, text, retry_after=float(retry_after) if retry_after.isdecimal() else None)
            yield response

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_CredentialSession]:
        """Yield a client with the current credentials. It is not closed before the context ends."""
        session = self._current
        if session is None:
            async with self._lock:
                session = self._current = self._current or await self._new_session()
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if session in self._retired and not session.users:
                self._retired.remove(session)
                await _close(session.client)

    async def _renew(self, refused: _CredentialSession) -> bool:
        """Load the credentials again, unless that was done after the request was sent; return whether to retry the request."""
        async with self._lock:
            if self._current is not refused:
                return True
            now = asyncio.get_running_loop().time()
            if now - self._renewed_at < self._renewal_seconds:
                return False
            self._renewed_at = now
            self._current = await self._new_session()
            self._retired.add(refused)
            return True

    async def _new_session(self) -> _CredentialSession:
        with map_exceptions(_FOREIGN):
            access = await self._load()
            configuration = access.configuration
            # With trust_env the HTTP library looks up the environment's proxy and ~/.netrc in a thread for each request, which takes more
            # than half of the CPU of a write; and with a password in ~/.netrc it refuses to send a request with a token.
            configuration.client_session_kwargs = {"trust_env": False}
            configuration.proxy = configuration.proxy or _proxy_of(configuration.host)
            client = ApiClient(configuration)
        client.user_agent = _AGENT
        for name, value in access.headers.items():
            client.set_default_header(name, value)  # type: ignore[no-untyped-call]  # the library has no annotations
        return _CredentialSession(client)


def _proxy_of(server: str) -> str | None:
    where = urlsplit(server)
    host = where.hostname or ""
    proxies = getproxies()
    left_out = bool(proxy_bypass(host))
    # Go programs understand address ranges in NO_PROXY, Python does not.
    for pattern in proxies.get("no", "").split(","):
        with suppress(ValueError):
            left_out = left_out or ip_address(host) in ip_network(pattern.strip(), strict=False)
    configured = proxies.get(where.scheme, "").strip()
    if left_out or not configured:
        return None
    proxy = configured if "://" in configured else f"http://{configured}"
    try:
        parts = urlsplit(proxy)
        by_http = parts.scheme in ("http", "https")
        is_address = by_http and bool(parts.hostname) and parts.port != 0 and parts.path in ("", "/")
    except ValueError:
        is_address = False
    if not is_address:
        # The value may contain a password, so the message does not repeat it.
        raise ConfigError(
            f"{where.scheme}_proxy in the environment is not the address of a proxy: write http://HOST:PORT"
        )
    return proxy


@asynccontextmanager
async def _send(
    client: ApiClient, request: Call, limits: aiohttp.ClientTimeout
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a request with the client's credentials, and release its response at the end."""
    headers = {
        "Accept": request.accept,
        "Accept-Encoding": request.accept_encoding,
        "Content-Type": request.content_type,
    }
    with map_exceptions(_FOREIGN):
        signed = await client.param_serialize(
            request.method,
            request.path,
            query_params=request.query,
            header_params=headers,
            body=request.body,
            auth_settings=["BearerToken"],
        )
        answer = await client.call_api(*signed, _request_timeout=limits)
    try:
        yield answer.response
    finally:
        # A response that was not read to its end, such as a watch, aborts its connection: a TLS shutdown would wait for the peer, and
        # `close` would not wait for the shutdown.
        connection = answer.response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        answer.response.close()


async def _close(client: ApiClient) -> None:
    await client.close()  # type: ignore[no-untyped-call]  # the library has no annotations


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    while True:
        with map_exceptions(_FOREIGN):
            chunk = await response.content.readany()
        if not chunk:
            return
        yield chunk


def kubeconfig(path: str = "", context: str = "") -> Load:
    """Load a kubeconfig found as by kubectl: the given path, $KUBECONFIG (several files are merged), ~/.kube/config."""

    async def load() -> Access:
        files = path or os.environ.get("KUBECONFIG", "") or "~/.kube/config"
        if not any(Path(path).expanduser().exists() for path in files.split(os.pathsep) if path):  # noqa: ASYNC240  once
            raise ConfigError(f"no kubeconfig at {files}")
        configuration = Configuration()
        try:
            with _keep_log(load_kube_config.__module__) as log:
                loader = await load_kube_config(  # type: ignore[no-untyped-call]  # the library has no annotations
                    config_file=files, context=context or None, client_configuration=configuration, persist_config=False
                )
            return Access(configuration, _user(loader, configuration, files, log))
        except (ConfigException, yaml.YAMLError, ValueError, OSError) as error:
            if context and f"with name {context} in" in str(error):
                raise ConfigError(f"kubeconfig {files}: there is no context {context!r} in it") from error
            why = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
            raise ConfigError(f"kubeconfig {files}: {why}") from error
        except (TypeError, AttributeError, LookupError, RecursionError) as error:
            raise ConfigError(f"kubeconfig {files}: a field has another form than `kubectl config` writes") from error

    return load


@contextmanager
def _keep_log(name: str) -> Iterator[list[str]]:
    """Collect a logger's messages instead of writing them. Contexts may overlap, because each removes only its own filter."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False

    logger = logging.getLogger(name)
    logger.addFilter(keep)
    try:
        yield messages
    finally:
        logger.removeFilter(keep)


def _user(loader: Any, configuration: Configuration, files: str, log: list[str]) -> dict[str, str]:
    """Return headers for the user's fields that the library ignores; raise ConfigError for lost credentials or unsupported fields."""
    node = loader._user  # noqa: SLF001  the library has no public access to the user's entry
    user: dict[str, Any] = {} if node is None else node.value
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        # The library only logs this, and would continue as system:anonymous.
        command = user["exec"]["command"]
        if shutil.which(command) is None:
            raise ConfigError(f"kubeconfig {files}: the credential program {command!r} is not installed here")
        why = " ".join(log)[:_LONGEST_ERROR] or "run the program by hand to see why"
        raise ConfigError(f"kubeconfig {files}: the credential program {command!r} gave no credentials: {why}")
    unknown = sorted({"as-groups", "as-user-extra"} & user.keys())
    if unknown:
        raise ConfigError(f"kubeconfig {files}: {' and '.join(unknown)} cannot be used here; `as` and `as-uid` can")
    return {header: user[name] for name, header in _IMPERSONATION.items() if name in user}


def in_cluster(token: str = SERVICE_TOKEN_FILENAME, authority: str = SERVICE_CERT_FILENAME) -> Load:
    """Load the service account of this process' pod from these files; the token is read again every minute."""

    async def load() -> Access:
        configuration = Configuration()
        try:
            loader = InClusterConfigLoader(token, authority)  # type: ignore[no-untyped-call]  # the library has no annotations
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise ConfigError(f"not inside a cluster: {error}") from error
        return Access(configuration)

    return load


def impersonating(load: Load, user: str) -> Load:
    """Load the same credentials, and impersonate another user."""

    async def load_for_user() -> Access:
        access = await load()
        return access._replace(headers=access.headers | {_IMPERSONATION["as"]: user})

    return load_for_user


def default(path: str = "", context: str = "") -> Load:
    """Load a kubeconfig if one is named or present, else the pod's service account."""
    is_named = path or context or os.environ.get("KUBECONFIG")
    if not is_named and os.environ.get("KUBERNETES_SERVICE_HOST") and not Path("~/.kube/config").expanduser().exists():
        return in_cluster()
    return kubeconfig(path, context)
