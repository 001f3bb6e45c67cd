// Renders conversations with a chat template: chat_template TEMPLATE CONTEXTS ROUNDS. CONTEXTS is a
// JSON array of the template's variables. Prints the bytes of the texts and the processor time.
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "data/chat_template/chat_template.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: chat_template TEMPLATE CONTEXTS ROUNDS\n");
    return 2;
  }
  try {
    const auto chat_template =
        zeroth::data::ChatTemplate::parse(zeroth::read_file(argv[1], size_t{1} << 20), argv[1]);
    const auto contexts =
        zeroth::parse_ordered_json(zeroth::read_file(argv[2], size_t{64} << 20), {.name = argv[2]});
    size_t bytes = 0;
    const std::clock_t start = std::clock();
    for (int round = 0; round < std::stoi(argv[3]); ++round) {
      for (const auto& context : contexts) bytes += chat_template.render(context).text.size();
    }
    fmt::print("{} {}\n", bytes, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
