"""What only a storage across a network can do: fail halfway, refuse, be silent. How it fails is planted in between."""

import errno
import io
import os
import socket
import ssl
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.settings import Settings
from app.storage import MissingObject, S3Access, S3Storage, UnsupportedStorage, configured_storage, open_storage
from app.storage.access import S3Place, parse_place
from app.storage.s3 import Replaced
from tests.s3 import S3Server
from tests.s3_faults import Fault, FaultyS3, break_off, faulty_s3, hang_up, let_pass, no_s3, only, refusal

PIECE = 5 * 1024**2  # the least that a part may have, all but the last; Amazon S3 User Guide, "Multipart upload limits"
QUICK = {"max_retries": 2, "backoff": {"init_backoff": timedelta(milliseconds=1)}}


@pytest.fixture
def faulty(shared_s3: S3Server) -> Iterator[FaultyS3]:
    with faulty_s3(shared_s3.url) as server:
        yield server


@pytest.fixture
def place(shared_s3: S3Server) -> S3Place:
    return shared_s3.new_bucket()


@pytest.fixture
def storage(faulty: FaultyS3, place: S3Place) -> S3Storage:
    return storage_at(faulty.url, place)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(2 * PIECE + 1))
    return path


def storage_at(url: str, place: S3Place) -> S3Storage:
    access = S3Access(url, "us-east-1", "AKIDEXAMPLE", "a secret")
    return S3Storage(place, access, client={"timeout": "5s"}, retry=QUICK, piece_bytes=PIECE)  # type: ignore[arg-type] # a literal


class TestFaultsThatPass:
    @pytest.mark.parametrize("fault", [refusal(503, "SlowDown"), refusal(500, "InternalError"), hang_up])
    def test_one_fault_costs_nothing(
        self, storage: S3Storage, faulty: FaultyS3, source: Path, tmp_path: Path, fault: Fault
    ) -> None:
        for method, act in (
            ("PUT", lambda: storage.put("a", source)),
            ("GET", lambda: storage.get("a", tmp_path / "fetched")),
            ("HEAD", lambda: storage.exists("a")),
            ("GET", storage.list),
            ("DELETE", lambda: storage.delete("a")),
        ):
            faulty.faults.append(only(method, fault))
            act()
            assert faulty.faults == []
        assert (tmp_path / "fetched").read_bytes() == source.read_bytes()

    def test_an_answer_that_breaks_off_is_asked_for_again(
        self, storage: S3Storage, faulty: FaultyS3, source: Path, tmp_path: Path
    ) -> None:
        storage.put("a", source)
        faulty.faults.append(only("GET", break_off))
        storage.get("a", tmp_path / "fetched")
        assert (tmp_path / "fetched").read_bytes() == source.read_bytes()


class TestFaultsThatStay:
    def test_a_put_that_fails_stores_nothing_and_leaves_no_parts(
        self, storage: S3Storage, faulty: FaultyS3, shared_s3: S3Server, place: S3Place, source: Path
    ) -> None:
        # The first part arrives, no other one does; the upload is then to be given up at the server too.
        faulty.faults += [only("PUT", let_pass), *[only("PUT", refusal(500, "InternalError"))] * 20]
        with pytest.raises(OSError, match=r"the S3 storage fails with status 500 \(InternalError\)"):
            storage.put("a", source)
        faulty.faults.clear()
        assert storage.list() == []
        assert "DELETE" in faulty.methods()
        assert "<UploadId>" not in shared_s3.ask("GET", f"{place.bucket}?uploads")

    def test_a_get_that_fails_leaves_no_file(
        self, storage: S3Storage, faulty: FaultyS3, source: Path, tmp_path: Path
    ) -> None:
        storage.put("a", source)
        # The head and the first of three pieces come, then nothing more.
        faulty.faults += [let_pass] * 2 + [refusal(503, "SlowDown")] * 20
        with pytest.raises(OSError, match=r"fails with status 503 \(SlowDown\)"):
            storage.get("a", tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()

    @pytest.mark.parametrize(
        ("status", "code"), [(403, "AccessDenied"), (403, "SignatureDoesNotMatch"), (401, "InvalidAccessKeyId")]
    )
    def test_a_refusal_is_no_missing_file(
        self, storage: S3Storage, faulty: FaultyS3, source: Path, status: int, code: str
    ) -> None:
        for act in (lambda: storage.put("a", source), storage.list):
            faulty.faults.append(refusal(status, code))
            with pytest.raises(PermissionError, match=rf"the S3 storage refuses access \({code}\)"):
                act()
        for silent in (lambda: storage.exists("a"), lambda: storage.open("a")):
            faulty.faults.append(refusal(status, code))  # a head, whose answer has no body
            with pytest.raises(PermissionError, match="refuses access"):
                silent()

    @pytest.mark.parametrize("code", ["ExpiredToken", "AuthorizationHeaderMalformed"])
    def test_credentials_that_ran_out_are_a_refusal(self, storage: S3Storage, faulty: FaultyS3, code: str) -> None:
        faulty.faults.append(refusal(400, code))
        with pytest.raises(PermissionError, match=rf"refuses access \({code}\)"):
            storage.list()

    def test_a_bucket_of_another_region_says_what_to_look_at(
        self, storage: S3Storage, faulty: FaultyS3, source: Path
    ) -> None:
        # Amazon answers so, without a Location. Source: Amazon S3 API Reference, "Error responses", PermanentRedirect.
        for act in (lambda: storage.put("a", source), lambda: storage.exists("a"), storage.list):
            faulty.faults.append(refusal(301, "PermanentRedirect"))
            with pytest.raises(OSError, match="TRAINSHED_S3_REGION or TRAINSHED_S3_ENDPOINT is not the bucket's"):
                act()

    def test_no_status_escapes_as_the_librarys_own_error(
        self, storage: S3Storage, faulty: FaultyS3, source: Path
    ) -> None:
        source.write_bytes(b"small")
        for act in (lambda: storage.put("a", source), lambda: storage.exists("a"), lambda: storage.delete("a")):
            for status in (304, 409, 412, 416):
                faulty.faults.append(refusal(status, "Strange"))
                with pytest.raises(OSError, match="the S3 storage") as caught:
                    act()
                assert faulty.url not in "".join(traceback.format_exception(caught.value))

    def test_an_upload_that_is_gone_is_no_missing_bucket(
        self, storage: S3Storage, faulty: FaultyS3, source: Path
    ) -> None:
        # What a server says to a completion that is repeated since its answer was lost, or after a rule cleaned up.
        faulty.faults += [only("POST", let_pass), only("POST", refusal(404, "NoSuchUpload"))]
        with pytest.raises(OSError, match=r"fails with status 404 \(NoSuchUpload\)"):
            storage.put("a", source)

    def test_an_answer_of_something_else_and_a_key_of_somebody_else(
        self, storage: S3Storage, faulty: FaultyS3, shared_s3: S3Server, place: S3Place
    ) -> None:
        faulty.faults.append(no_s3)
        with pytest.raises(OSError, match="gives an answer that is none of S3's"):
            storage.list()
        shared_s3.ask("PUT", f"{place.bucket}/a//b")
        with pytest.raises(OSError, match="an object in the storage's folder whose key has empty or odd parts"):
            storage.list()

    def test_a_server_that_is_not_there(self, place: S3Place, source: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and never listens
            storage = storage_at(f"http://127.0.0.1:{taken.getsockname()[1]}", place)
            for act in (lambda: storage.put("a", source), lambda: storage.exists("a"), storage.list):
                with pytest.raises(OSError, match="the S3 storage does not answer") as caught:
                    act()
                assert caught.value.errno == errno.EIO

    def test_a_server_that_is_silent(self, place: S3Place) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            access = S3Access(f"http://127.0.0.1:{silent.getsockname()[1]}", "us-east-1", "k", "s")
            storage = S3Storage(place, access, client={"timeout": "100ms"}, retry=QUICK)  # type: ignore[arg-type] # a literal
            with pytest.raises(OSError, match="the S3 storage does not answer"):
                storage.exists("a")

    def test_without_the_bucket_nothing_looks_deleted(self, faulty: FaultyS3, source: Path, tmp_path: Path) -> None:
        storage = storage_at(faulty.url, S3Place("no-such-bucket"))
        for act in (
            lambda: storage.put("a", source),
            lambda: storage.get("a", tmp_path / "fetched"),
            lambda: storage.exists("a"),
            lambda: storage.open("a"),
            lambda: storage.local_path("a"),
            storage.list,
        ):
            with pytest.raises(OSError, match="the S3 storage has no bucket 'no-such-bucket'") as caught:
                act()
            assert not isinstance(caught.value, MissingObject)

    def test_no_error_tells_a_key_or_an_address(self, storage: S3Storage, faulty: FaultyS3, source: Path) -> None:
        for fault in (refusal(403, "AccessDenied"), refusal(418, "Teapot")):
            faulty.faults.append(fault)
            with pytest.raises(OSError, match="S3 storage") as caught:
                storage.put("a", source)
            told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
            assert "AKIDEXAMPLE" not in told
            assert "a secret" not in told
            assert faulty.url not in told
        assert "a secret" not in repr(S3Access("", "", "AKIDEXAMPLE", "a secret"))


class TestCertificate:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        """Of `localhost`, signed by itself, with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = tmp_path / "certificate.pem"
        path.write_bytes(pem + made.public_bytes(Encoding.PEM))
        return path

    def test_one_that_nobody_vouches_for_is_refused_and_said(self, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with faulty_s3("", context) as server:
            storage = storage_at(server.url.replace("http://127.0.0.1", "https://localhost"), S3Place("bucket"))
            with pytest.raises(OSError, match="certificate of the S3 storage is not trusted by this system"):
                storage.exists("a")
            assert server.seen == []


class TestReplaced:
    def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(
        self, storage: S3Storage, source: Path, tmp_path: Path
    ) -> None:
        storage.put("a", source)
        with storage.open("a") as file:
            file.read(10)
            storage.put("a", self.other(tmp_path, source))
            file.seek(PIECE + 1)
            with pytest.raises(Replaced, match="'a' was replaced in the storage while it was read"):
                file.read(10)

    def test_a_get_begins_again(self, storage: S3Storage, faulty: FaultyS3, source: Path, tmp_path: Path) -> None:
        storage.put("a", source)
        other = self.other(tmp_path, source)
        content = other.read_bytes()

        def replace(_: object) -> bool:
            storage.put("a", other)
            return False

        # Head, first piece, and before the second one comes, the object is another.
        faulty.faults += [let_pass] * 2 + [replace]
        storage.get("a", tmp_path / "fetched")
        assert (tmp_path / "fetched").read_bytes() == content

    def other(self, tmp_path: Path, source: Path) -> Path:
        path = tmp_path / "other"
        path.write_bytes(os.urandom(source.stat().st_size))
        return path


class TestParts:
    def test_a_large_file_is_sent_in_parts_and_a_small_one_at_once(
        self, storage: S3Storage, faulty: FaultyS3, source: Path
    ) -> None:
        storage.put("a", source)
        # Begin, three parts, complete. Source: Amazon S3 User Guide, "Multipart upload process".
        assert sorted(faulty.methods()) == ["POST", "POST", "PUT", "PUT", "PUT"]
        faulty.seen.clear()
        source.write_bytes(b"small")
        storage.put("b", source)
        assert faulty.methods() == ["PUT"]

    def test_reading_a_part_fetches_no_more_than_its_piece(
        self, storage: S3Storage, faulty: FaultyS3, source: Path
    ) -> None:
        storage.put("a", source)
        faulty.seen.clear()
        with storage.open("a") as file:
            file.seek(-8, io.SEEK_END)
            assert file.read() == source.read_bytes()[-8:]
        assert faulty.methods() == ["HEAD", "GET"]

    def test_more_than_one_page_is_listed(self, storage: S3Storage, faulty: FaultyS3, tmp_path: Path) -> None:
        # A server lists at most 1,000 objects at once. Source: Amazon S3 API Reference, ListObjectsV2.
        (tmp_path / "one").write_bytes(b"1")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: storage.put(f"a/{number:04}", tmp_path / "one"), range(1_001)))
        faulty.seen.clear()
        assert storage.list("a") == [f"a/{number:04}" for number in range(1_001)]
        assert faulty.methods() == ["GET", "GET"]

    def test_what_others_keep_in_the_bucket_is_not_listed(
        self, storage: S3Storage, shared_s3: S3Server, place: S3Place
    ) -> None:
        shared_s3.ask("PUT", f"{place.bucket}/.hidden/file")
        shared_s3.ask("PUT", f"{place.bucket}/a/b")
        assert storage.list() == ["a/b"]


class TestSettings:
    def test_place_and_access_come_from_the_settings(self, shared_s3: S3Server, source: Path) -> None:
        place = shared_s3.new_bucket("team/trainshed")
        values = {name.removeprefix("TRAINSHED_").lower(): text for name, text in shared_s3.settings(place).items()}
        configured_storage(Settings.model_validate(values)).put("a/b", source)
        listing = shared_s3.ask("GET", f"{place.bucket}?list-type=2")
        assert "<Key>team/trainshed/a/b</Key>" in listing

    def test_a_bucket_with_and_without_a_folder(self) -> None:
        assert parse_place("s3://models") == parse_place("s3://models/") == S3Place("models")
        assert parse_place("s3://my.models/a/b/") == S3Place("my.models", "a/b")

    @pytest.mark.parametrize(
        "url", ["s3://", "s3:///a", "s3://x", "s3://UPPER", "s3://user:secret@models", "s3://models/../x", "s3://a b"]
    )
    def test_anything_else_is_refused_without_being_repeated(self, url: str) -> None:
        with pytest.raises(UnsupportedStorage, match="for example s3://models/trainshed") as caught:
            open_storage(url)
        assert "secret" not in str(caught.value)
        assert caught.value.code == "invalid_settings"

    def test_a_key_needs_its_secret(self) -> None:
        for key, secret in (("AKIDEXAMPLE", ""), ("", "a secret")):
            with pytest.raises(UnsupportedStorage, match="belong together"):
                S3Access("", "", key, secret)

    @pytest.mark.parametrize("text", ["a\nb", "eu\r", "\ufeffa", "ключ"])
    def test_what_cannot_be_a_header_is_refused_before_it_is_used(self, text: str) -> None:
        for access in (("", text, "", ""), ("", "", text, "a secret"), ("", "", "AKIDEXAMPLE", text)):
            with pytest.raises(UnsupportedStorage, match="ASCII text of one line") as caught:
                S3Access(*access)
            assert text not in str(caught.value)

    def test_a_session_of_the_environment_does_not_join_the_keys_of_the_settings(
        self, faulty: FaultyS3, place: S3Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "of another key")
        sent: dict[str, str] = {}
        faulty.faults.append(lambda handler: bool(sent.update(handler.headers.items())))
        storage_at(faulty.url, place).exists("a")
        assert "Credential=AKIDEXAMPLE/" in sent["authorization"]
        assert "x-amz-security-token" not in sent

    @pytest.mark.parametrize("endpoint", ["minio:9000", "ftp://minio", "https://user:secret@minio", "https://"])
    def test_an_endpoint_is_an_address_without_credentials(self, endpoint: str) -> None:
        with pytest.raises(UnsupportedStorage, match="TRAINSHED_S3_ENDPOINT") as caught:
            S3Access(endpoint)
        assert "secret" not in str(caught.value)
