#include "comm/keyed_digest.h"

#include <doctest/doctest.h>

namespace zeroth::comm {

TEST_CASE("digests are those of RFC 2202") {
  CHECK(keyed_digest(std::string(20, '\x0b'), "Hi There") ==
        "b617318655057264e28bc0b6fb378c8ef146be00");
  CHECK(keyed_digest("Jefe", "what do ya want for nothing?") ==
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
  CHECK(keyed_digest(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "125d7342b9ac11cd91a39af48aa17b4f63f175d3");
  CHECK(keyed_digest(std::string(80, '\xaa'),
                     "Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data") ==
        "e8e99d0f45237d786d6bbaa7965c7808bbff1a91");
}

TEST_CASE("digests are the same only when all of their characters are") {
  CHECK(same_digest("abc", "abc"));
  CHECK_FALSE(same_digest("abc", "abd"));
  CHECK_FALSE(same_digest("abc", "ab"));
  CHECK_FALSE(same_digest("", "a"));
}

}  // namespace zeroth::comm
