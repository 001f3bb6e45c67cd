#include "base/scheduler_env.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::node_list_test {
namespace {

using Names = std::vector<std::string>;

std::string refusal(const std::string& list) {
  return message_of<Error>([&] { expand_node_list(list); });
}

}  // namespace

TEST_CASE("a list of nodes is spelled out in its order") {
  CHECK(expand_node_list("n1") == Names{"n1"});
  CHECK(expand_node_list("n[1-3,07]") == Names{"n1", "n2", "n3", "n07"});
  CHECK(expand_node_list("n[08-10],login") == Names{"n08", "n09", "n10", "login"});
  CHECK(expand_node_list("r[1-2]n[3-4]") == Names{"r1n3", "r1n4", "r2n3", "r2n4"});
  CHECK(expand_node_list("gpu[1,3]-ib.cluster") == Names{"gpu1-ib.cluster", "gpu3-ib.cluster"});
  CHECK(expand_node_list("b,a[2]") == Names{"b", "a2"});
  CHECK(expand_node_list("n[0-65535]").size() == 65'536);
}

TEST_CASE("what is no list of nodes is refused with the list and the reason") {
  CHECK(refusal("n[1-3") == "'n[1-3' is not a valid node list: '[' without ']'");
  CHECK(refusal("n1-3]") == "'n1-3]' is not a valid node list: ']' without '['");
  CHECK(refusal("n[1[2]]") == "'n[1[2]]' is not a valid node list: '[' within '['");
  CHECK(refusal("n[3-1]") == "'n[3-1]' is not a valid node list: '3-1' is a descending range");
  CHECK(refusal("n[a-b]") == "'n[a-b]' is not a valid node list: 'a' is not a number");
  CHECK(refusal("n[]") == "'n[]' is not a valid node list: '' is not a number");
  CHECK(refusal("a,,b") == "'a,,b' is not a valid node list: a name is empty");
  CHECK(refusal("") == "'' is not a valid node list: a name is empty");
  CHECK(refusal("a;rm") == "'a;rm' is not a valid node list: invalid character ';' in a name");
  CHECK(refusal("n[0-65536]").ends_with("more than 65536 names"));
  CHECK(refusal("n[0-999][0-999]").ends_with("more than 65536 names"));
  CHECK(refusal("n[0-9],m[0-4294967295]").ends_with("more than 65536 names"));
  CHECK(refusal("n[99999999999]").ends_with("'99999999999' is not a number"));
}

TEST_CASE("counts may be followed by how often they come") {
  CHECK(expand_counts("2(x3),1") == std::vector{2, 2, 2, 1});
  CHECK(expand_counts("4") == std::vector{4});
  CHECK(expand_counts("1(x2),0,3(x1)") == std::vector{1, 1, 0, 3});
  for (const char* bad : {"", "x", "2(x)", "2(x0)", "2(3)", "2(x3", "-1", "1,,2", "1(x70000)"}) {
    CAPTURE(bad);
    CHECK(message_of<Error>([&] { expand_counts(bad); }) ==
          fmt::format("'{}' is not a valid list of counts, such as 2(x3),1", bad));
  }
}

}  // namespace zeroth::node_list_test
