import pytest

from lattice_openai.security import allowed_hosts, bare_host, is_loopback


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:11435", "localhost"),
        ("localhost.:80", "localhost"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("evil.example:80", "evil.example"),
        ("", ""),
    ],
)
def test_a_host_headers_name_is_found(header, name):
    assert bare_host(header) == name


def test_on_loopback_only_the_machines_own_names_are_allowed():
    hosts = allowed_hosts("box.local", "127.0.0.2", ["proxy.example"])
    assert hosts == {"localhost", "127.0.0.1", "::1", "127.0.0.2", "box.local", "proxy.example"}


def test_elsewhere_only_a_given_list_is_enforced():
    assert allowed_hosts("0.0.0.0", "0.0.0.0", []) is None
    assert "api.example" in allowed_hosts("0.0.0.0", "0.0.0.0", ["api.example"])


def test_a_star_switches_the_host_check_off():
    assert allowed_hosts("127.0.0.1", "127.0.0.1", ["*"]) is None


def test_loopback_addresses_are_known():
    assert [is_loopback(address) for address in ("127.0.0.9", "::1", "0.0.0.0", "::", "192.168.0.1", "fe80::1%eth0")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
