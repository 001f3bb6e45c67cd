#include "checkpoint/rank_manifest.h"

#include <doctest/doctest.h>

#include "base/files/crc32c.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::rank_manifest_test {
namespace {

RankReport report_of(const std::string& file) {
  RankReport report{{.step = 8, .attempt = "1.1", .must_equal = {{"model", "m"}}}};
  const TensorChunk chunk = TensorChunk::full(file + ".weight", "master", "F32", {3});
  report.manifest.files = {{file, 100, 7, {{chunk, 50, 9}}}};
  return report;
}

std::string refused(const std::vector<RankReport>& reports) {
  return message_of<Error>([&] { (void)merge_reports(reports, {}); });
}

}  // namespace

TEST_CASE("a report comes over as it was given") {
  RankReport report = report_of("a");
  report.parts = {{"model.safetensors", 5, 10, 0xffffffff}};
  const RankReport again = parse_report(to_string(report));
  CHECK(again.manifest.step == report.manifest.step);
  CHECK(again.manifest.attempt == report.manifest.attempt);
  CHECK(again.manifest.must_equal == report.manifest.must_equal);
  CHECK(again.manifest.files == report.manifest.files);
  CHECK(again.parts == report.parts);
  CHECK(message_of<Error>([] { (void)parse_report("x"); }) == "a rank's report is cut short");
  CHECK_THROWS_AS((void)parse_report("[]\n{}"), Error);
  report.parts[0].file = "../x";
  CHECK(message_of<Error>([&] { (void)parse_report(to_string(report)); }) ==
        "parts[0][0] is \"../x\", expected the name of a file within the checkpoint");
}

TEST_CASE("rows of a matrix take eight bytes each in a report") {
  RankReport report = report_of("a");
  auto& parts = report.parts;
  const auto rows = [&](const std::string& file, int64_t offset, int64_t count, int64_t stride) {
    for (int64_t i = 0; i < count; ++i, offset += stride) {
      parts.push_back({file, offset, 100, static_cast<uint32_t>(parts.size() * 0x9e3779b9)});
    }
  };
  rows("m", 500, 1000, 400);
  rows("m", 500'000, 2, 300);  // too few to be told together
  parts.push_back({"m", 600'000, 7, 3});
  rows("m", 600'100, 50, 200);
  rows("n", 610'100, 50, 200);  // as if it went on in another file
  rows("n", 8, 40, 0);
  const std::string text = to_string(report);
  CHECK(text.find('\n') < 10'000);
  CHECK(parse_report(text).parts == parts);
  const auto refused = [](const std::string& line) {
    return message_of<Error>([&] { (void)parse_report(line + to_string(RankReport{}).substr(2)); });
  };
  CHECK(refused(R"([["m",0,4,8,"0123"]])") ==
        "parts[0][4] is \"0123\", expected CRCs of eight digits");
  CHECK(
      refused(R"([["m",0,4,4611686018427387903,"0000000000000000"]])").starts_with("parts[0][3]"));
}

TEST_CASE("reports become one list, parts of a file in the order of their bytes") {
  RankReport first = report_of("a"), second = report_of("b");
  const std::string text = "0123456789";
  const auto part = [&](size_t begin, size_t size) {
    return FileSegment{"m", static_cast<int64_t>(begin), static_cast<int64_t>(size),
                       crc32c(std::string_view(text).substr(begin, size))};
  };
  first.parts = {part(7, 3), part(0, 2)};
  second.parts = {part(2, 0), part(2, 5)};
  const auto files = merge_reports({first, second}, {});
  REQUIRE(files.size() == 3);
  CHECK(files[2] == StoredFile{"m", 10, crc32c(text)});
  second.parts = {part(3, 4)};
  CHECK(refused({first, second}) == "m: ranks wrote bytes from offset 3, expected offset 2");
  second.parts = {part(1, 6)};
  CHECK(refused({first, second}) == "m: ranks wrote bytes from offset 1, expected offset 2");
}

TEST_CASE("reports of different saves do not become one") {
  RankReport other = report_of("b");
  other.manifest.step = 9;
  CHECK(refused({report_of("a"), other}) == "rank 0 saves step 8, rank 1 step 9");
  other = report_of("b");
  other.manifest.attempt = "1.2";
  CHECK(refused({report_of("a"), other}) == "rank 0 saves in attempt 1.1, rank 1 in 1.2");
  other = report_of("b");
  other.manifest.must_equal = {{"model", "n"}};
  CHECK(refused({report_of("a"), other}) == "model is m on rank 0 and n on rank 1");
  other.manifest.must_equal = {};
  CHECK(refused({report_of("a"), other}) == "model is m on rank 0 and not set on rank 1");
  CHECK(refused({report_of("a"), report_of("a")}) == "a was written by two ranks");
}

}  // namespace zeroth::checkpoint::rank_manifest_test
