#include "trainer/flags/hf_flag_table.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {

TEST_CASE("a spelling of Hugging Face stands for a flag that there is, or says why not") {
  const std::string help = parse_line("--help").answer;
  std::set<std::string_view> names;
  for (const HfFlag& flag : hf_flags()) {
    CAPTURE(flag.name);
    CHECK(names.insert(flag.name).second);
    CHECK(flag.name.find('-') == std::string_view::npos);
    const bool alias = flag.kind == HfFlag::Kind::kValue || flag.kind == HfFlag::Kind::kSwitch;
    if (alias) CHECK(has(help, "  " + std::string(flag.target)));
    const bool explained = flag.kind == HfFlag::Kind::kIdle || flag.kind == HfFlag::Kind::kRefused;
    CHECK(explained == !flag.text.empty());
  }
}

}  // namespace zeroth::trainer
