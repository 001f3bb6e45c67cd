// Small templates with what transformers renders, from fixtures/chat_template/cases.json.
#pragma once

#include <doctest/doctest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "data/chat_template/chat_template.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data {

// 2026-01-15, the time of the fixtures.
inline std::tm fixture_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mday = 15;
  time.tm_wday = 4;
  time.tm_yday = 14;
  return time;
}

inline RenderedChat render_chat(const std::string& source, const std::string& context = "{}",
                                const RenderLimits& limits = {}) {
  return ChatTemplate::parse(source, "t.jinja")
      .render(nlohmann::ordered_json::parse(context), {.limits = limits, .now = fixture_time()});
}

inline std::string render_text(const std::string& source, const std::string& context = "{}") {
  return render_chat(source, context).text;
}

inline std::string render_error(const std::string& source, const std::string& context = "{}") {
  return error_of([&] { render_chat(source, context); });
}

inline nlohmann::ordered_json read_ordered_fixture(const std::string& name) {
  std::ifstream file(fixture(name));
  REQUIRE(file);
  return nlohmann::ordered_json::parse(file);
}

// Renders a template; nullopt for an Error.
inline std::optional<std::string> try_render(const std::string& source,
                                             const nlohmann::ordered_json& context) {
  try {
    return ChatTemplate::parse(source, "t.jinja").render(context, {.now = fixture_time()}).text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Checks the cases of one group: the same text, or an Error where there is no text.
inline void check_template_cases(const std::string& group) {
  int checked = 0;
  const auto fixture = read_ordered_fixture("chat_template/cases.json");
  for (const auto& entry : fixture["cases"]) {
    if (entry["group"] != group) continue;
    ++checked;
    const std::string source = entry["template"];
    CAPTURE(source);
    const auto text = try_render(source, entry["context"]);
    CHECK(text.has_value() == entry["text"].is_string());
    if (text && entry["text"].is_string()) CHECK(*text == entry["text"].get<std::string>());
  }
  CHECK(checked > 4);
}

}  // namespace zeroth::data
