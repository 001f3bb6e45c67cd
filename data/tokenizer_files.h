// What the files beside tokenizer.json and its `post_processor` say about special ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::data {

// Ids that stand around a whole text; a thousand at most.
struct TextTemplate {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Throws Error naming a post-processor type that is not supported, or what is wrong by its key.
TextTemplate parse_text_template(const nlohmann::json& post_processor);

// See Tokenizer::end_of_text. `token_to_id` gives the id of a token's text; a named token without
// one is an Error.
std::optional<int32_t> find_end_of_text(
    const std::filesystem::path& model_dir,
    const std::function<std::optional<int32_t>(const std::string&)>& token_to_id);

}  // namespace zeroth::data
