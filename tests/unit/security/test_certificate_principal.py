"""Names in certificates as Java writes them, and Kafka's own cases for the rules that map them."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import ConfigError
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.security.certificate_principal import NoMatchingRule, SslPrincipalMapper, subject_name
from tests.support.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority()
KEY = AUTHORITY.issue().key


def certificate(*relative_names: dict[x509.ObjectIdentifier, str]) -> bytes:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in names.items()])
            for names in relative_names
        ]
    )
    return AUTHORITY.issue(subject=name, key=KEY).certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("relative_names", "text"),
    [  # each of them printed by X500Principal.getName of Java 17
        (
            [
                {NameOID.COUNTRY_NAME: "US"},
                {NameOID.ORGANIZATION_NAME: "Sun Microsystems, Inc."},
                {NameOID.ORGANIZATIONAL_UNIT_NAME: 'a=b+c<d>#e;"f"\\g'},
                {NameOID.COMMON_NAME: " #Duke "},
            ],
            r"CN=\ \#Duke\ ,OU=a\=b\+c\<d\>\#e\;\"f\"\\g,O=Sun Microsystems\, Inc.,C=US",
        ),
        (
            [
                {NameOID.EMAIL_ADDRESS: "x@y.z"},
                {NameOID.DOMAIN_COMPONENT: "org"},
                {NameOID.USER_ID: "u1"},
                {NameOID.STREET_ADDRESS: "s"},
                {NameOID.STATE_OR_PROVINCE_NAME: "st"},
                {NameOID.LOCALITY_NAME: "l"},
                {NameOID.SERIAL_NUMBER: "12"},
                {NameOID.TITLE: "t"},
                {NameOID.COMMON_NAME: "żółć ünicode"},
            ],
            "CN=żółć ünicode,2.5.4.12=#0c0174,2.5.4.5=#13023132,L=l,ST=st,STREET=s,UID=u1,DC=org,"
            "1.2.840.113549.1.9.1=#16057840792e7a",
        ),
        (
            [{NameOID.COMMON_NAME: "tab\tnul\0x"}, {NameOID.SURNAME: "sn"}],
            "2.5.4.4=#0c02736e,CN=tab\tnul\\00x",
        ),
        ([{NameOID.COMMON_NAME: "  "}], r"CN=\ \ "),
        ([{NameOID.COMMON_NAME: "a\r"}], "CN=a\\\r"),
        (
            [{NameOID.USER_ID: "u", NameOID.COMMON_NAME: "multi"}, {NameOID.ORGANIZATION_NAME: "o"}],
            "O=o,CN=multi+UID=u",
        ),
    ],
)
def test_names_are_written_as_java_writes_them(
    relative_names: list[dict[x509.ObjectIdentifier, str]], text: str
) -> None:
    assert subject_name(certificate(*relative_names)) == text


def test_a_long_name_is_whole() -> None:
    parts = [{NameOID.ORGANIZATIONAL_UNIT_NAME: f"{index:060}"} for index in range(20)]
    assert subject_name(certificate(*parts)).count("OU=") == 20


@given(st.binary(max_size=200))
def test_what_is_no_certificate_is_an_error_of_one_kind(data: bytes) -> None:
    try:
        subject_name(data)
    except (ValueError, IndexError):
        pass


MAPPER = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [  # SslPrincipalMapperTest
        (MAPPER, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (MAPPER, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (MAPPER, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (MAPPER, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (MAPPER, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        (
            r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
            r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz",
            r"Tkac\, Adam",
        ),
        # Java's Matcher.replaceAll
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:(C)(N)=a/$1-$3-$12-\\$1-$0/", "CN=a", "C-$3-C2-$1-CN=a"),
        ("RULE:CN=(?P<who>.*)/${who}!/", "CN=a", "a!"),
        ("RULE:CN=(x)?a/<$1>/", "CN=a", "<>"),
    ],
)
def test_rules_map_names(rules: str, name: str, principal: str) -> None:
    assert SslPrincipalMapper(rules).name(name) == principal


@pytest.mark.parametrize(
    "rules",
    [  # SslPrincipalMapperTest
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    ],
)
def test_rules_that_are_taken(rules: str) -> None:
    assert "rules = [" in repr(SslPrincipalMapper(rules))


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        *(
            (rule, "must be DEFAULT or RULE:")  # SslPrincipalMapperTest
            for rule in (
                "default",
                "DEFAUL",
                "DEFAULT/L",
                "DEFAULT/U",
                "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
                "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
                "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
                "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
                "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
            )
        ),
        ("RULE:(/x/", "missing"),
        ("RULE:(?=a)a/x/", "syntax of RE2"),
        ("RULE:(a)\\1/x/", "syntax of RE2"),
        ("RULE:CN=a/$1/", "no group 1"),
        ("RULE:CN=a/$x/", "after a \\$ comes"),
        ("RULE:CN=a/${x}/", "no group x"),
    ],
)
def test_rules_that_are_refused(rules: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SslPrincipalMapper(rules)


@pytest.mark.parametrize(
    ("rules", "read"),
    [  # SslPrincipalMapperTest: "seeing is believing"
        ("", ""),
        ("DEFAULT", "DEFAULT"),
        ("RULE://", "RULE:/"),
        ("RULE:/.*/", "RULE:/.*"),
        ("RULE:/.*/L", "RULE:/.*/L"),
        ("RULE://,DEFAULT", "RULE:/, DEFAULT"),
        ("  RULE:// ,  DEFAULT  ", "RULE:/, DEFAULT"),
        ("  RULE:   /     / ,  DEFAULT  ", "RULE:   /     , DEFAULT"),
        ("  RULE:  /     /U   ,DEFAULT  ", "RULE:  /     /U, DEFAULT"),
        (
            "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
            "RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT",
        ),
        (",   , , ,      , , ,   ", ""),
        (",,RULE://,,,DEFAULT,,", "RULE:/, DEFAULT"),
        (",  , RULE: /   /    ,,,   DEFAULT, ,   ", "RULE: /   , DEFAULT"),
        (r"RULE:\/\\\(\)\n\t/\/\//", r"RULE:\/\\\(\)\n\t/\/\/"),
    ],
)
def test_rules_are_taken_apart_as_kafka_does(rules: str, read: str) -> None:
    assert repr(SslPrincipalMapper(rules)) == f"SslPrincipalMapper(rules = [{read}])"


def test_a_name_that_no_rule_matches_is_nobody() -> None:
    mapper = SslPrincipalMapper("RULE:^CN=a$/a/")
    assert mapper.principal(None) is ANONYMOUS
    assert mapper.principal(certificate({NameOID.COMMON_NAME: "a"})) == KafkaPrincipal("User", "a")
    with pytest.raises(NoMatchingRule, match="CN=b"):
        mapper.principal(certificate({NameOID.COMMON_NAME: "b"}))


def test_a_hostile_name_takes_no_time_that_grows() -> None:
    """With backtracking this pattern would take hours for this name."""
    mapper = SslPrincipalMapper("RULE:^CN=(a+)+$/$1/,DEFAULT")
    name = "CN=" + "a" * 50_000 + "!"
    assert mapper.name(name) == name
