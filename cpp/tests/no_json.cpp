// HEARTH_NO_JSON: no parser is looked for, though one may be installed; a codec of the program's own still works.
#define HEARTH_NO_JSON
#include <hearth/json.hpp>

#include <gtest/gtest.h>

#if defined(NLOHMANN_JSON_VERSION_MAJOR) || defined(RAPIDJSON_MAJOR_VERSION)
#error "HEARTH_NO_JSON has looked for a parser"
#endif

namespace {
struct number {
    int value = 0;
};
} // namespace
template <>
struct hearth::json_codec<number> {
    static std::string write(const number &one) { return std::to_string(one.value); }
    static bool read(std::string_view text, number &one) {
        one.value = text == "7" ? 7 : 0;
        return one.value != 0;
    }
};

TEST(no_json, leaves_codecs_of_ones_own) {
    number back;
    EXPECT_TRUE(
        hearth::json_codec<number>::read(hearth::json_codec<number>::write(number{7}), back));
    EXPECT_EQ(back.value, 7);
}
