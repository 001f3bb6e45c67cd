// Special ids from the files beside tokenizer.json, and from its `post_processor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::data {

// TextTemplate is the ids around a full text, at most a thousand.
struct TextTemplate {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Parses a post-processor. Throws an Error that names an unsupported type, or the wrong key.
TextTemplate parse_text_template(const nlohmann::json& post_processor);

// Returns Tokenizer::end_of_text(). `token_to_id` returns the id of a token's text; a named token
// without an id is an Error.
std::optional<int32_t> find_end_of_text(
    const std::filesystem::path& model_dir,
    const std::function<std::optional<int32_t>(const std::string&)>& token_to_id);

}  // namespace zeroth::data
