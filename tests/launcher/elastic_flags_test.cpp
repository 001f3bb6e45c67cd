#include "launcher/flags/host_flags.h"

#include <doctest/doctest.h>

#include "launcher/flags/cli.h"

namespace zeroth::launcher::elastic_flags_test {
namespace {

using Words = std::vector<std::string>;

ElasticOptions parse(Words flags) {
  flags.emplace_back("prog");
  return parse_command_line(flags).elastic;
}

std::string error_of(const Words& flags) {
  try {
    parse(flags);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("without a flag nothing is started again, and no code is for that") {
  const ElasticOptions options = parse({});
  CHECK_FALSE(options.hosts);
  CHECK(options.effective_max_restarts() == 0);
  CHECK_FALSE(options.effective_requeue_code());
  CHECK(parse({"--max-restarts", "2"}).effective_max_restarts() == 2);
  CHECK(parse({"--requeue-code=9"}).effective_requeue_code() == 9);
}

TEST_CASE("an elastic run has a range of hosts, restarts and a code to be requeued") {
  const ElasticOptions options = parse({"--elastic", "2:8"});
  CHECK(options.hosts == NodeRange{2, 8});
  CHECK(options.effective_max_restarts() == 3);
  CHECK(options.effective_requeue_code() == 75);
  CHECK(parse({"--elastic", "4"}).hosts == NodeRange{4, 4});
  CHECK(parse({"--elastic=1:2", "--max_restarts=0"}).effective_max_restarts() == 0);
}

TEST_CASE("DeepSpeed's three flags say the same") {
  CHECK(parse({"--elastic_training"}).hosts == NodeRange{1, 0});
  CHECK(parse({"--elastic_training", "--min_elastic_nodes", "2", "--max_elastic_nodes", "-1"})
            .hosts == NodeRange{2, 0});
  CHECK(parse({"--elastic_training", "--max_elastic_nodes=4"}).hosts == NodeRange{1, 4});
  CHECK(error_of({"--min_elastic_nodes=2"}).find("need --elastic_training") != std::string::npos);
  CHECK(error_of({"--elastic_training", "--elastic=1:2"}).find("use one of them") !=
        std::string::npos);
  CHECK(error_of({"--elastic_training", "--max_elastic_nodes=0"}) ==
        "--max_elastic_nodes 0: at least one host is needed");
}

TEST_CASE("values that cannot be are refused with what they are") {
  for (const char* text : {"", "0:2", "a", "1:b", "2:", ":2", "1:2:3", "1:999999999", "-1:2"}) {
    CAPTURE(text);
    CHECK(error_of({std::string("--elastic=") + text}) != "");
  }
  CHECK(error_of({"--elastic=3:2"}) == "--elastic 3:2: the minimum 3 is larger than the maximum 2");
  CHECK(error_of({"--max-restarts=-1"}) == "--max-restarts -1: restarts cannot be negative");
  CHECK(error_of({"--requeue-code=200"}).starts_with("--requeue-code 200: must be from 1 to 125"));
  CHECK(error_of({"--elastic=1:2", "--join-port=0"}) ==
        "--join-port 0: a port lies between 1 and 65535");
  CHECK(error_of({"--join-port=29400"}).find("only a run with --elastic") != std::string::npos);
  CHECK(error_of({"--elastic=1:2", "--elastic-wait=-1"}) ==
        "--elastic-wait -1: seconds cannot be negative");
}

TEST_CASE("a host that joins a run names no program") {
  CHECK(parse_command_line({"--join", "host-0:29400"}).elastic.join == "host-0:29400");
  CHECK(error_of({"--join", "host-0:29400"}) ==
        "--join host-0:29400: the joined run sets the program; leave out prog");
}

}  // namespace zeroth::launcher::elastic_flags_test
