#include "data/records/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <vector>

#include "base/error.h"

namespace zeroth::data {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// Members that follow each other, as `cat a.gz b.gz` and bgzip write them.
class GzipSource : public ByteSource {
 public:
  explicit GzipSource(const std::filesystem::path& path)
      : ByteSource(path), unpacked_(kPieceBytes) {
    constexpr int kGzipWindow = 15 + 16;  // the longest window, and gzip's header
    const int result = ::inflateInit2(&stream_, kGzipWindow);
    if (result != Z_OK) throw Error("cannot unpack {}: {}", this->path(), ::zError(result));
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::string_view next() override {
    while (true) {
      const std::string_view packed = stored();
      if (!in_member_) {
        if (packed.empty()) return {};
        if (!std::string_view("\x1f\x8b").starts_with(packed.substr(0, 2))) throw_trailing("gzip");
        ::inflateReset(&stream_);
        in_member_ = true;
      }
      const size_t size = inflate_some(packed);
      if (size > 0) return {unpacked_.data(), size};
      if (in_member_ && stored().empty()) throw_cut_off();
    }
  }

 private:
  // Returns the number of unpacked bytes.
  size_t inflate_some(std::string_view packed) {
    // zlib reads from this pointer only.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(packed.size());
    stream_.next_out = reinterpret_cast<Bytef*>(unpacked_.data());
    stream_.avail_out = static_cast<uInt>(unpacked_.size());
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    advance(packed.size() - stream_.avail_in);
    if (result == Z_STREAM_END) {
      in_member_ = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw_damaged(stream_.msg != nullptr ? stream_.msg : ::zError(result));
    }
    return unpacked_.size() - stream_.avail_out;
  }

  z_stream stream_{};
  bool in_member_ = false;
  std::vector<char> unpacked_;
};

// Frames that follow each other, with skippable ones between them, as pzstd writes them.
class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(const std::filesystem::path& path)
      : ByteSource(path), stream_(::ZSTD_createDStream()), unpacked_(::ZSTD_DStreamOutSize()) {
    if (stream_ == nullptr) throw Error("cannot unpack {}: out of memory", this->path());
  }

  std::string_view next() override {
    while (true) {
      const std::string_view packed = stored();
      if (!in_frame_ && packed.empty()) return {};
      if (!in_frame_ && !begins_frame(packed)) throw_trailing("Zstandard");
      ZSTD_inBuffer in{packed.data(), packed.size(), 0};
      ZSTD_outBuffer out{unpacked_.data(), unpacked_.size(), 0};
      const size_t result = ::ZSTD_decompressStream(stream_.get(), &out, &in);
      advance(in.pos);
      if (::ZSTD_isError(result) != 0) refuse(result);
      in_frame_ = result != 0;
      if (out.pos > 0) return {unpacked_.data(), out.pos};
      if (in_frame_ && stored().empty()) throw_cut_off();
    }
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };

  [[noreturn]] void refuse(size_t result) const {
    if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      throw Error(
          "{} needs more than 128 MiB to unpack: zstd -dc --long=31 FILE | zstd -o NEW mends it",
          path());
    }
    throw_damaged(::ZSTD_getErrorName(result));
  }

  static bool begins_frame(std::string_view packed) {
    return std::string_view("\x28\xb5\x2f\xfd").starts_with(packed.substr(0, 4)) ||
           ((packed.front() & 0xf0) == 0x50 &&
            std::string_view("\x2a\x4d\x18").starts_with(packed.substr(1, 3)));
  }

  std::unique_ptr<ZSTD_DStream, Free> stream_;
  bool in_frame_ = false;
  std::vector<char> unpacked_;
};

}  // namespace

ByteSource::ByteSource(const std::filesystem::path& path) : path_(path.string()), file_(path) {}

std::string_view ByteSource::next() {
  const std::string_view bytes = stored();
  // The pages of the piece before are dropped: its reader is done with it.
  file_.drop_pages(file_.bytes().subspan(dropped_, at_ - dropped_));
  dropped_ = at_;
  at_ += bytes.size();
  return bytes;
}

std::string_view ByteSource::stored() const {
  return file_.text().substr(at_, kPieceBytes);
}

void ByteSource::advance(size_t bytes) {
  at_ += bytes;
  if (at_ - dropped_ < kPieceBytes) return;
  file_.drop_pages(file_.bytes().subspan(dropped_, at_ - dropped_));
  dropped_ = at_;
}

void ByteSource::throw_cut_off() const {
  throw Error("{} is cut off at byte {}: its compressed data has no end", path_, at_);
}

void ByteSource::throw_damaged(const char* reason) const {
  throw Error("{} is damaged at byte {}: {}", path_, at_, reason);
}

void ByteSource::throw_trailing(const char* format) const {
  throw Error("{} has bytes that are not {} from byte {} on, after compressed data", path_, format,
              at_);
}

std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path,
                                             Compression compression) {
  if (compression == Compression::kGzip) return std::make_unique<GzipSource>(path);
  if (compression == Compression::kZstd) return std::make_unique<ZstdSource>(path);
  return std::make_unique<ByteSource>(path);
}

}  // namespace zeroth::data
