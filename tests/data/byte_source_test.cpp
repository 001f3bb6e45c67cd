#include "data/records/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include "tests/data/container_test_support.h"

namespace zeroth::data::byte_source_test {
namespace {

std::string read_all(const std::filesystem::path& path, Compression compression) {
  const auto source = open_byte_source(path, compression);
  std::string text;
  for (std::string_view piece = source->next(); !piece.empty(); piece = source->next()) {
    CHECK(piece.size() <= size_t{1} << 20);
    text += piece;
  }
  CHECK(source->position() == source->size());
  return text;
}

std::string gzip(const std::string& text) {
  std::string packed(text.size() + 1'000, '\0');
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  return packed;
}

// Text of `bytes` bytes that compresses by a half.
std::string noise(size_t bytes) {
  std::string text;
  for (uint64_t state = 1; text.size() < bytes;) {
    state = state * 6364136223846793005 + 1442695040888963407;
    text += static_cast<char>('a' + (state >> 60));
  }
  return text;
}

}  // namespace

TEST_CASE("Bytes of many pieces are the same, stored in any way") {
  TempFolder directory;
  const std::string text = noise(5'000'000);
  CHECK(read_all(directory.write("t", text), Compression::kNone) == text);
  CHECK(read_all(directory.write("t", gzip(text)), Compression::kGzip) == text);
  CHECK(read_all(directory.write("t", zstd(text)), Compression::kZstd) == text);
  const std::string zeros(70'000'000, '\0');  // a kilobyte becomes a megabyte
  CHECK(read_all(directory.write("t", gzip(zeros)), Compression::kGzip) == zeros);
  CHECK(read_all(directory.write("t", zstd(zeros)), Compression::kZstd) == zeros);
}

TEST_CASE("Members and frames follow each other") {
  TempFolder directory;
  std::string members, frames;
  for (const char* const part : {"a", "", "bc"}) {
    members += gzip(part);
    frames += zstd(part);
  }
  CHECK(read_all(directory.write("t", members), Compression::kGzip) == "abc");
  CHECK(read_all(directory.write("t", frames), Compression::kZstd) == "abc");
}

TEST_CASE("A file that is cut off anywhere says so, with the byte where it ends") {
  TempFolder directory;
  for (const auto& [compression, packed] :
       {std::pair(Compression::kGzip, gzip(noise(300))), {Compression::kZstd, zstd(noise(300))}}) {
    for (size_t size = 1; size < packed.size(); ++size) {
      const auto path = directory.write("t", packed.substr(0, size));
      const std::string error = error_of([&, kind = compression] { read_all(path, kind); });
      CHECK(error == fmt::format("{} is cut off at byte {}: its compressed data has no end",
                                 path.string(), size));
    }
  }
}

TEST_CASE("What comes before the cut is read") {
  TempFolder directory;
  const std::string packed = gzip(noise(5'000'000));
  const auto path = directory.write("t", packed.substr(0, packed.size() / 2));
  const auto source = open_byte_source(path, Compression::kGzip);
  CHECK(source->next() == noise(5'000'000).substr(0, 1 << 20));
}

TEST_CASE("Bytes after the compressed data are refused with their offset") {
  TempFolder directory;
  const std::string members = gzip("a") + gzip("b"), frames = zstd("a") + zstd("b");
  const auto gz = directory.write("t.gz", members + "tail");
  CHECK(error_of([&] { read_all(gz, Compression::kGzip); }) ==
        fmt::format("{} has bytes that are not gzip from byte {} on, after compressed data",
                    gz.string(), members.size()));
  const auto zst = directory.write("t.zst", frames + "tail");
  CHECK(error_of([&] { read_all(zst, Compression::kZstd); }) ==
        fmt::format("{} has bytes that are not Zstandard from byte {} on, after compressed data",
                    zst.string(), frames.size()));
}

TEST_CASE("Damaged data is refused with its offset and a reason") {
  TempFolder directory;
  std::string packed = gzip(noise(3'000));
  packed[packed.size() - 5] ^= 1;  // of the checksum
  const auto gz = directory.write("t.gz", packed);
  const std::string error = error_of([&] { read_all(gz, Compression::kGzip); });
  check_contains(error, "t.gz is damaged at byte ");
  check_contains(error, ": incorrect data check");
  packed = zstd(noise(3'000));
  packed[5] ^= 0x55;
  const auto zst = directory.write("t.zst", packed);
  check_contains(error_of([&] { read_all(zst, Compression::kZstd); }), "t.zst is damaged at byte ");
}

TEST_CASE("A frame that needs much memory is refused, with what mends it") {
  TempFolder directory;
  // A frame's header: no size of the content, and a window of 2 GiB.
  const auto path = directory.write("t.zst", std::string("\x28\xb5\x2f\xfd\0\xa8\x01\0\0", 9));
  check_contains(error_of([&] { read_all(path, Compression::kZstd); }),
                 "t.zst needs more than 128 MiB to unpack: zstd -dc --long=31");
}

}  // namespace zeroth::data::byte_source_test
