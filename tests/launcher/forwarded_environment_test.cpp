#include "launcher/backends/forwarded_environment.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::forwarded_environment_test {
namespace {

using Names = std::vector<std::string>;

std::string error_of(std::string_view text) {
  return message_of<Error>([&] { parse_environment_file(text, ".deepspeed_env"); });
}

Names names_of(const Variables& variables) {
  Names names;
  for (const auto& [name, value] : variables) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("variables with DeepSpeed's prefixes and those that steer ranks are carried over") {
  const Variables own = {
      {"NCCL_DEBUG", "INFO"},      {"PATH", "/bin"},           {"PYTHONPATH", "/x:y"},
      {"UCX_TLS", "tcp"},          {"HOME", "/root"},          {"MV2_X", ""},
      {"MLFLOW_RUN_ID", "7"},      {"HF_HOME", "/hf"},         {"LD_LIBRARY_PATH", "/l"},
      {"DS_ACCELERATOR", "cpu"},   {"ZEROTH_CPU", "avx2"},     {"OMP_NUM_THREADS", "2"},
      {"GLOO_SOCKET_IFNAME", "e"}, {"DEEPSPEED_TIMEOUT", "5"}, {"A_NCCL_X", "1"},
      {"ZEROTH_TIMEOUT", "9"}};
  CHECK(names_of(select_forwarded(own)) == Names{"NCCL_DEBUG", "PYTHONPATH", "UCX_TLS", "MV2_X",
                                                 "MLFLOW_RUN_ID", "DS_ACCELERATOR", "ZEROTH_CPU",
                                                 "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME",
                                                 "DEEPSPEED_TIMEOUT", "ZEROTH_TIMEOUT"});
}

TEST_CASE("neither secrets nor what belongs to one launcher or host are carried over") {
  const Variables own = {{"ZEROTH_SECRET", "s"},
                         {"ZEROTH_SECRET_FILE", "f"},
                         {"ZEROTH_RUN_SECRET", "r"},
                         {"ZEROTH_MEETING", "m"},
                         {"ZEROTH_JOB", "j"},
                         {"ZEROTH_TTY", "1"},
                         {"ZEROTH_HOST_ID", "h"},
                         {"MLFLOW_TRACKING_PASSWORD", "p"},
                         {"MLFLOW_TRACKING_TOKEN", "t"},
                         {"PYTHONKEYRING", "k"}};
  CHECK(names_of(select_forwarded(own)) == Names{"PYTHONKEYRING"});
  CHECK(withheld_secrets(own) == Names{"MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"});
}

TEST_CASE("secret_names: a secret is known in any case and within words, and nothing else is one") {
  const char* const secrets[] = {"DS_API_KEY",      "DS_api_key",
                                 "DS_APIKEY",       "MLFLOW_PASSWD",
                                 "MLFLOW_AUTH",     "DS_CREDENTIALS",
                                 "DS_Token",        "DS_apiKey",
                                 "DS_DBPASSWORD",   "DS_PASS",
                                 "DS_pwd",          "DS_MyPassphrase",
                                 "MLFLOW_OAUTH2",   "DS_SECRETS",
                                 "DS_TOKENS",       "MLFLOW_CREDENTIAL",
                                 "NCCL_accesskey",  "DS_AUTHORIZATION",
                                 "DS_Bearer",       "DS_SSHKEYFILE",
                                 "DS_TOKEN2",       "UCX_PRIVATEKEY1",
                                 "DS_AUTHOR_TOKEN", "DS_KEYBOARD_KEY",
                                 "DS_KEY",          "DS_MAX_AUTH_TOKENS",
                                 "DS_JWT",          "DS_TOKENIZER_AUTH",
                                 "MLFLOW_DB_CREDS"};
  for (const char* const name : secrets) {
    CAPTURE(name);
    CHECK(select_forwarded({{name, "x"}}).empty());
    CHECK(withheld_secrets({{name, "x"}}) == Names{name});
  }
  const char* const harmless[] = {"DS_TOKENIZERS_PARALLELISM",
                                  "DS_MAX_TOKENS",
                                  "DS_AUTHOR",
                                  "MLFLOW_KEYBOARD",
                                  "DS_tokenizer",
                                  "DS_maxTokens",
                                  "DS_TOKENS_PER_BATCH",
                                  "DS_AUTHORS",
                                  "DS_NUM_NEW_TOKENS",
                                  "DS_KEYWORDS",
                                  "DS_MONKEY",
                                  "DS_COMPASS",
                                  "DS_NUM_PASSES",
                                  "DS_BYPASS",
                                  "NCCL_IB_PKEY",
                                  "UCX_IB_PKEY",
                                  "UCX_KEEPALIVE_INTERVAL",
                                  "DS_KEYPOINTS",
                                  "PYTHONPATH",
                                  "MLFLOW_RUN_ID",
                                  "OMP_NUM_THREADS",
                                  "DS_CREDIT"};
  for (const char* const name : harmless) {
    CAPTURE(name);
    CHECK(select_forwarded({{name, "x"}}).size() == 1);
    CHECK(withheld_secrets({{name, "x"}}).empty());
  }
}

TEST_CASE("on a cluster that sets devices for each host these stay there") {
  const Variables own = {{"NCCL_IB_HCA", "mlx5"}, {"UCX_NET_DEVICES", "e"}, {"NCCL_DEBUG", "x"}};
  CHECK(select_forwarded(own).size() == 3);
  Variables cluster = own;
  cluster.emplace_back("AISC_JOB_NAME", "job");
  CHECK(names_of(select_forwarded(cluster)) == Names{"NCCL_DEBUG"});
}

TEST_CASE("a file has a variable in each line, its value byte for byte") {
  CHECK(parse_environment_file("# comment\n"
                               "\n"
                               "SLURM_TASKS=64(x2)\n"
                               "A= two  words \n"
                               "EMPTY=\n"
                               "B=a=b\"'$HOME`id`\\n # no comment\xff\n"
                               "  \t\n"
                               "LAST=x",
                               "f") == Variables{{"SLURM_TASKS", "64(x2)"},
                                                 {"A", " two  words "},
                                                 {"EMPTY", ""},
                                                 {"B", "a=b\"'$HOME`id`\\n # no comment\xff"},
                                                 {"LAST", "x"}});
  CHECK(parse_environment_file("", "f").empty());
}

TEST_CASE("bad lines are refused by their number, all together") {
  CHECK(error_of("A=1\nB\n") == ".deepspeed_env: line 2: 'B' has no '='; expected NAME=VALUE");
  CHECK(error_of("export A=1") ==
        ".deepspeed_env: line 1: 'export A' is not a valid variable name");
  CHECK(error_of("=1") == ".deepspeed_env: line 1: '' is not a valid variable name");
  CHECK(error_of("1A=1") == ".deepspeed_env: line 1: '1A' is not a valid variable name");
  CHECK(error_of(" A=1") == ".deepspeed_env: line 1: ' A' is not a valid variable name");
  CHECK(error_of("A=1\r\n").find("line 1: it ends with a carriage return") != std::string::npos);
  CHECK(
      error_of(std::string_view("A=\0", 3)).find("line 1: a variable cannot contain a null byte") !=
      std::string::npos);
  CHECK(error_of("A=1\n\nA=2") ==
        ".deepspeed_env: line 3: duplicate variable A: already in line 1");
  CHECK(error_of("x\nRANK=1\nMASTER_ADDR=a") ==
        ".deepspeed_env: line 1: 'x' has no '='; expected NAME=VALUE\n"
        "  .deepspeed_env: line 2: RANK is set for each rank by zeroth itself; leave it out\n"
        "  .deepspeed_env: line 3: MASTER_ADDR is set for each rank by zeroth itself; leave it "
        "out");
  for (const char* name : {"ZEROTH_SECRET", "ZEROTH_SECRET_FILE", "ZEROTH_RUN_SECRET"})
    CHECK(error_of(std::string(name) + "=x")
              .find(" is a secret, which is sent to hosts separately") != std::string::npos);
  CHECK(error_of(std::string(100'000, 'x')).size() < 300);
}

TEST_CASE("the file at home comes before the one here, and both before nothing else") {
  const TempFolder home, here;
  const Variables own = {{"NCCL_DEBUG", "INFO"}, {"HOME", "x"}};
  CHECK(forwarded_environment(own, home.path(), here.path()) == Variables{{"NCCL_DEBUG", "INFO"}});
  home.write(".deepspeed_env", "A=home\nNCCL_DEBUG=WARN\nMLFLOW_TOKEN=t\n");
  CHECK(forwarded_environment(own, home.path(), here.path()) ==
        Variables{{"NCCL_DEBUG", "WARN"}, {"A", "home"}, {"MLFLOW_TOKEN", "t"}});
  here.write(".deepspeed_env", "A=here\nB=2\n");
  CHECK(forwarded_environment(own, home.path(), here.path()) ==
        Variables{{"NCCL_DEBUG", "WARN"}, {"A", "here"}, {"MLFLOW_TOKEN", "t"}, {"B", "2"}});
  CHECK(forwarded_environment({}, std::nullopt, here.path()) ==
        Variables{{"A", "here"}, {"B", "2"}});
}

TEST_CASE("DS_ENV_FILE names another file, which has to be there") {
  const TempFolder home, here;
  here.write(".deepspeed_env", "A=unread\n");
  home.write("mine", "A=home\n");
  const auto carried = [&](const std::string& name) {
    return forwarded_environment({{"DS_ENV_FILE", name}}, home.path(), here.path());
  };
  const auto value = [](const Variables& variables) { return variables.back().second; };
  CHECK(value(carried("mine")) == "home");
  CHECK(value(carried((home / "mine").string())) == "home");
  CHECK(value(carried("")) == "unread");
  CHECK(
      message_of<Error>([&] { carried("other"); }) ==
      "DS_ENV_FILE is 'other', but there is no such file in the home folder or the working folder");
}

TEST_CASE("a file that others may write is not believed") {
  const TempFolder here;
  const auto path = here.write(".deepspeed_env", "LD_PRELOAD=/tmp/x.so\n");
  ::chmod(path.c_str(), 0666);
  const auto read = [&] { forwarded_environment({}, std::nullopt, here.path()); };
  CHECK(message_of<Error>(read).find("writable by every user (mode 666); chmod o-w") !=
        std::string::npos);
  ::chmod(path.c_str(), 0644);
  CHECK(message_of<Error>(read) == "no exception");
  if (::geteuid() != 0) return;
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  CHECK(message_of<Error>(read).find("it belongs to user 65534, expected 0 or root") !=
        std::string::npos);
}

TEST_CASE("this process's own variables are seen as they are") {
  ::setenv("ZEROTH_TEST_ODD", " a=b\n\xff", 1);
  const Variables own = process_environment();
  ::unsetenv("ZEROTH_TEST_ODD");
  const std::pair<std::string, std::string> odd = {"ZEROTH_TEST_ODD", " a=b\n\xff"};
  CHECK(std::find(own.begin(), own.end(), odd) != own.end());
}

}  // namespace zeroth::launcher::forwarded_environment_test
