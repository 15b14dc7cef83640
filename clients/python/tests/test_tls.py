from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import Service

import weir

USER = ["user", "alex"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, the service's certificate for 127.0.0.1, and a client certificate."""
    directory = tmp_path_factory.mktemp("certificates")
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    openssl(directory, *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name, subject in (("service", "IP:127.0.0.1,DNS:weir.test"), ("client", "DNS:client")):
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        openssl(
            directory,
            *new,
            *signed,
            "-subj",
            f"/CN={name}",
            "-addext",
            f"subjectAltName={subject}",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        )
    return directory


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def service(serve: Callable[..., Service], certificates: Path) -> Service:
    return serve(
        WEIR_GRPC__TLS__CERT=f"{certificates}/service.pem",
        WEIR_GRPC__TLS__KEY=f"{certificates}/service.key",
        WEIR_GRPC__TLS__CLIENT_CA=f"{certificates}/ca.pem",
    )


def test_both_sides_show_certificates(service: Service, connect: Callable[..., Any], certificates: Path) -> None:
    own: dict[str, Any] = {"cert": certificates / "client.pem", "key": certificates / "client.key"}
    ca = certificates / "ca.pem"
    assert connect(service.address, tls=weir.TLS(ca=ca, **own)).check(USER)
    assert connect(service.address, tls=weir.TLS(ca=ca, server_name="weir.test", **own)).check(USER)
    # Several addresses: the name applies to each.
    assert connect([service.address, service.address], tls=weir.TLS(ca=ca, **own)).check(USER)
    for unknown in (weir.TLS(ca=ca), weir.TLS(**own), weir.TLS(ca=ca, server_name="other.test", **own)):
        client = connect(service.address, tls=unknown, deadline=1.0, retries=0)
        with pytest.raises(weir.Outage):
            client.check(USER)


def test_files_that_are_missing_or_empty_fail_at_once(certificates: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("\n")
    tls: tuple[Any, ...] = ({"ca": empty}, {"cert": empty, "key": certificates / "client.key"})
    for files in tls:
        with pytest.raises(ValueError, match=r"empty\.pem is empty"):
            weir.Client("127.0.0.1:1", tls=weir.TLS(**files))
    with pytest.raises(FileNotFoundError):
        weir.Client("127.0.0.1:1", tls=weir.TLS(ca=certificates / "none.pem"))
    with pytest.raises(ValueError, match="needed together"):
        weir.Client("127.0.0.1:1", tls=weir.TLS(cert=certificates / "client.pem"))
