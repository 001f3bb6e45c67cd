// Chat templates of Hugging Face (Jinja), rendered as transformers renders them: the same text, and
// an error wherever transformers raises one. What is not supported is refused with its position and
// never rendered differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::data {

namespace jinja {
struct Template;
}

// Limits of one rendering. A template comes with a checkpoint and is not trusted.
struct RenderLimits {
  uint64_t max_steps = 10'000'000;              // about one for each node of the template
  size_t max_output_bytes = size_t{16} << 20;   // of the text
  size_t max_memory_bytes = size_t{256} << 20;  // of all values, the intermediate ones included
};

struct RenderOptions {
  RenderLimits limits = {};
  std::optional<std::tm> now;  // what strftime_now prints; the local time if absent
};

// Byte offsets into the text.
struct RenderedRange {
  size_t begin = 0;
  size_t end = 0;
};

// A range of the text that came from `messages[message][field]`, or from a part of that field; or
// the template's own words while a loop over messages was at this one: then `field` is empty.
struct SourceRange {
  size_t begin = 0;
  size_t end = 0;
  size_t message = 0;
  std::string field;  // "content", "reasoning_content", "tool_calls", "role", ...
};

struct RenderedChat {
  std::string text;
  std::vector<SourceRange> sources;       // ascending, disjoint
  std::vector<RenderedRange> generation;  // text inside `{% generation %}`; ascending, disjoint
};

// A ChatTemplate can render in several threads at once.
class ChatTemplate {
 public:
  // Parses the source of a template; `name` is its file in messages. Throws an Error
  // "name:line:column: reason" for a source that is not UTF-8, has more than 256 KiB, is invalid or
  // uses what is not supported. Lines and columns (in characters) count from 1.
  static ChatTemplate parse(std::string_view source, std::string name);

  // Renders the template. `context` is an object of all variables, as transformers passes them:
  // messages, tools and documents (null if there are none), add_generation_prompt, the special
  // tokens that are set (bos_token, ...) and the arguments of the caller, which the caller of this
  // function merges. Throws an Error "name:line:column: reason" for a failure of the template,
  // whose own words follow after raise_exception(), and beyond a limit.
  RenderedChat render(const nlohmann::ordered_json& context,
                      const RenderOptions& options = {}) const;

 private:
  ChatTemplate(std::shared_ptr<const jinja::Template> tree, std::string name)
      : tree_(std::move(tree)), name_(std::move(name)) {}

  std::shared_ptr<const jinja::Template> tree_;
  std::string name_;
};

}  // namespace zeroth::data
