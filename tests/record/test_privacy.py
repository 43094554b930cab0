"""What a run folder holds of the environment and the command line."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.profiler.record.privacy import ENVIRONMENT, MASK, environment, is_secret_name, mask_argv

SECRET_NAMES = """api-key api_key apiKey key token auth-token hf_token hub.token auth.token access_token password db_password DB_PASS passwd
    secret client-secret secret-id aws_secret_access_key AWS_ACCESS_KEY_ID WANDB_API_KEY wandb.api_key credential connection-string
    private-key pwd jwt awsSecretKey OPENAI_API_KEY api-key2 slack-webhook-url basic-auth""".split()
ORDINARY_NAMES = """tokenizer key-frames num-tokens max_tokens tokens-per-batch image-key label_key keys pad-token eos_token eos-token-id
    special_token token-file password-file secret-name no-password monkey public-key-frames author pass-rate passes forward-pass PWD
    tokenizer.path keypoints signature-def auth-type""".split()
TOKENS = [
    "ghp_" + "a1B2" * 9,
    "github_pat_11ABCDEFG0" + "x1_Y" * 15,
    "hf_" + "aBcD" * 9,
    "sk-" + "a1B2" * 12,
    "sk-proj-" + "a1_B-" * 10,
    "sk-ant-api03-" + "a1B2" * 10,
    "AKIAIOSFODNN7EXAMPLE",
    "glpat-" + "a1B2_" * 4,
    "xoxb-123456789012-abcdefghijkl",
    "xoxp-123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "AIza" + "a1B2_" * 7,
    "nvapi-" + "a1B2" * 12,
]
ORDINARY = """train.py --tokenizer gpt2 --key-frames 3 --num-tokens 5 --lr 1e-3 --data /data/keys/token/train --label-key label -v
    --pad-token <pad> model.name=resnet50 +trainer.max_steps=10 data/sha256=5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
    --wandb-project keys https://example.com:8080/path@v1.0/file?page=2&size=3 s3://bucket/key-frames/a.tar git@github.com:owner/repo.git
    git+ssh://git@github.com/owner/repo --betas=0.9,0.999 --sk-learn sk-learn-random-forest-classifier-2
    global-batch-size-experiment-4 --mean [0.4,0.5] user@host
    --signature serving_default C:\\data\\train -- 12:30:00 ~optimizer --cfg={"tokenizer":{"name":"gpt2"}} --no-password rest""".split()

#: A secret as people paste them: no blanks, none of the characters that end a value in a query string or a list.
secrets = st.text("abcdefXYZ0123456789+/._~!$%^*@#", min_size=6, max_size=40).map(lambda text: "S3cr" + text)
secret_names = st.sampled_from(SECRET_NAMES)


def masked(*argv: str) -> str:
    return " ".join(mask_argv(list(argv)))


@given(secret_names, secrets)
def test_the_argument_after_a_secret_option_is_masked(name, secret):
    assert mask_argv(["train.py", f"--{name}", secret, "--epochs", "3"]) == ["train.py", f"--{name}", MASK, "--epochs", "3"]


@given(secret_names, st.text(min_size=1).filter(lambda text: text != MASK), st.sampled_from(["", "--", "-", "+", "++"]))
def test_the_value_of_a_secret_name_is_masked_whatever_is_in_it(name, secret, dashes):
    assert mask_argv([f"{dashes}{name}={secret}"]) == [f"{dashes}{name}={MASK}"]


@given(secret_names, secrets)
def test_a_secret_in_a_query_string_is_masked_and_the_rest_stays(name, secret):
    assert masked(f"--data=https://host/file?page=2&{name}={secret}&size=3") == f"--data=https://host/file?page=2&{name}={MASK}&size=3"


@given(secret_names, secrets)
@pytest.mark.parametrize("text", ['{{"a": 1, "{}": "{}"}}', "a=1,{}={}", "login({}='{}')", "python x.py --{} {} -v", "{}: {}"])
def test_a_secret_in_a_list_json_code_or_command_line_is_masked(text, name, secret):
    assert secret not in masked("--cfg", text.format(name, secret))


@given(secrets)
@pytest.mark.parametrize("url", ["https://user:{}@host/path", "postgres://user:{}@host:5432/db", "--store=redis://:{}@host/0"])
def test_a_password_in_a_url_is_masked_and_its_host_stays(url, secret):
    password = secret.replace("@", "")

    assert masked(url.format(password)) == url.replace("user:", "").replace(":{}", MASK).replace("{}", MASK)


@given(secrets)
def test_a_token_in_a_url_is_masked_and_its_host_stays(secret):
    assert masked("https://{}@host/path".format(re.sub("[/#]", "", secret))) == f"https://{MASK}@host/path"


PRESIGNED = ["X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "sig", "access_key", "AWSAccessKeyId", "X-Goog-Signature"]


@pytest.mark.parametrize("parameter", PRESIGNED)
def test_a_presigned_address_loses_its_signature(parameter):
    assert masked(f"s3://bucket/a.tar?X-Amz-Expires=60&{parameter}=abc%2F1") == f"s3://bucket/a.tar?X-Amz-Expires=60&{parameter}={MASK}"


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "--name={}", "runs/{}/out", "git clone https://host/{}", "'{}'", "a:{}"])
def test_a_known_token_is_masked_wherever_it_stands(token, around):
    assert token not in masked("--comment", around.format(token))


def test_a_header_loses_its_token():
    assert "abc123def" not in masked("-H", "Authorization: Bearer abc123def") + masked("-H", "Authorization: Basic abc123def")


def test_an_environment_assignment_in_front_of_a_command_is_masked():
    assert masked("env", "WANDB_API_KEY=0123abcd", "python", "train.py") == f"env WANDB_API_KEY={MASK} python train.py"


def test_all_arguments_after_a_plural_option_are_masked_up_to_the_next_option():
    assert mask_argv(["--api-keys", "one", "two", "--epochs", "3"]) == ["--api-keys", MASK, MASK, "--epochs", "3"]


def test_a_secret_option_without_a_value_leaves_the_next_option_alone():
    assert mask_argv(["--use-auth-token", "--epochs", "3"]) == ["--use-auth-token", "--epochs", "3"]


def test_a_private_key_is_masked():
    assert "MIIE" not in masked("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----")


@pytest.mark.parametrize("argument", ORDINARY)
def test_an_ordinary_argument_is_unharmed(argument):
    assert mask_argv([argument]) == [argument]


def test_an_ordinary_command_line_is_unharmed():
    assert mask_argv(ORDINARY) == ORDINARY


@pytest.mark.parametrize("name", ORDINARY_NAMES)
def test_an_ordinary_name_is_not_secret(name):
    assert not is_secret_name(name)
    assert mask_argv([f"--{name}", "value", f"{name}=value"]) == [f"--{name}", "value", f"{name}=value"]


texts = st.one_of(st.text(max_size=30), st.text("ab=:&?-_/@\"' .key*token{}", max_size=40), st.sampled_from(ORDINARY + TOKENS))
arguments = st.lists(texts)


@given(arguments)
def test_masking_keeps_the_number_of_arguments_and_masking_again_changes_nothing(argv):
    once = mask_argv(argv)

    assert len(once) == len(argv)
    assert mask_argv(once) == once


def test_a_long_argument_is_masked_in_time_that_grows_with_its_length_not_its_square():
    def spent(length: int) -> float:
        began = time.process_time()
        for piece in ("a", "a=", "--a ", "a://", "key:", "-", "a:", "a.", "eyJ-", "bearer ", "token  ", "'", "://a:b"):
            mask_argv([piece * length, "https://" + piece * length])
        return time.process_time() - began

    assert spent(12_000) < 9 * spent(3_000)


def test_only_variables_of_the_list_are_recorded():
    told = environment({"RANK": "3", "OMP_NUM_THREADS": "4", "WANDB_API_KEY": "0123abcd", "HOME": "/home/me", "SLURM_JOB_USER": "me"})

    assert told == {"OMP_NUM_THREADS": "4", "RANK": "3"}


def test_a_listed_variable_that_holds_a_token_is_masked_all_the_same():
    assert environment({"TORCHELASTIC_RUN_ID": TOKENS[0]}) == {"TORCHELASTIC_RUN_ID": MASK}


def test_no_listed_variable_has_a_secret_name():
    assert not [name for name in ENVIRONMENT if is_secret_name(name)]
