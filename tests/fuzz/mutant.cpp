#include "tests/fuzz/mutant.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <random>
#include <string_view>

namespace zeroth::fuzz {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 16;

const std::vector<std::string> kPieces = {"[[[[[[[[",
                                          "{\"a\":",
                                          "]",
                                          "}",
                                          "\"",
                                          "\\u0000",
                                          "\\ud800",
                                          "null",
                                          "true",
                                          ",",
                                          ":",
                                          "\n",
                                          std::string(1, '\0'),
                                          "\x1b[2J",
                                          "\x7f",
                                          "\xc2\x9b",
                                          "\xff",
                                          "\xef\xbb\xbf",
                                          "NaN",
                                          "-Infinity",
                                          "//",
                                          "/*",
                                          "auto",
                                          "../",
                                          "--",
                                          "=",
                                          "\"\":",
                                          "e\u0301\u0323",
                                          std::string(200, '['),
                                          std::string(300, 'k')};

const std::vector<std::string> kNumbers = {"0",
                                           "-1",
                                           "1",
                                           "1e9990",
                                           "-1e300",
                                           "1e300",
                                           "100000000",
                                           "2147483648",
                                           "4294967297",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551616",
                                           "0.5",
                                           "1e-400",
                                           "00"};

class Changes {
 public:
  explicit Changes(uint64_t seed) : random_(seed) {}

  size_t below(size_t end) { return end == 0 ? 0 : static_cast<size_t>(random_() % end); }

  const std::string& one_of(const std::vector<std::string>& list) {
    return list[below(list.size())];
  }

  void change(std::string& bytes, const std::vector<std::string>& originals) {
    const size_t at = below(bytes.size() + 1);
    const size_t length = below(std::min<size_t>(bytes.size() - at, 64) + 1);
    switch (below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.insert(at, one_of(kPieces));
        break;
      case 5:
        replace_number(bytes, at);
        break;
      case 6: {
        const std::string& other = one_of(originals);
        bytes.insert(at, other, below(other.size() + 1), below(128));
        break;
      }
      default:
        if (below(8) == 0) bytes.resize(at);
    }
  }

 private:
  // The first one behind `at`.
  void replace_number(std::string& bytes, size_t at) {
    const auto is_digit = [](unsigned char byte) { return std::isdigit(byte) != 0; };
    const auto begin =
        std::find_if(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end(), is_digit);
    const auto end = std::find_if_not(begin, bytes.end(), is_digit);
    bytes.replace(begin, end, one_of(kNumbers));
  }

  std::mt19937_64 random_;
};

}  // namespace

std::string mutant(const std::vector<std::string>& originals, uint64_t seed) {
  Changes changes(seed);
  std::string bytes = changes.one_of(originals);
  for (size_t left = 1 + changes.below(6); left > 0; --left) changes.change(bytes, originals);
  return bytes.substr(0, kMaxBytes);
}

}  // namespace zeroth::fuzz
