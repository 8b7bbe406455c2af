// JSON with the available parser: nlohmann/json, RapidJSON, or both. Define HEARTH_NO_JSON to compile without either.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#if !defined(HEARTH_NO_JSON)
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define HEARTH_HAS_NLOHMANN
#endif
#if __has_include(<rapidjson/document.h>)
#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#define HEARTH_HAS_RAPIDJSON
#endif
#endif

namespace hearth {
inline namespace v1 {

// How a document of type `Json` is written and read. Specialise it for another parser. `write` returns a std::string, or a std::optional of
// it if some documents cannot be written.
template <typename Json>
struct json_codec;

#ifdef HEARTH_HAS_NLOHMANN
template <>
struct json_codec<nlohmann::json> {
    // Bytes that are no UTF-8 become U+FFFD: JSON is UTF-8 (RFC 8259, 8.1).
    static std::string write(const nlohmann::json &document) {
        return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    static bool read(std::string_view text, nlohmann::json &document) {
        document = nlohmann::json::parse(text, nullptr, false);
        return !document.is_discarded();
    }
};
#endif

#ifdef HEARTH_HAS_RAPIDJSON
template <>
struct json_codec<rapidjson::Document> {
    // std::nullopt: it has a number that JSON cannot express, such as an infinity.
    static std::optional<std::string> write(const rapidjson::Document &document) {
        rapidjson::StringBuffer buffer;
        rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
        if (!document.Accept(writer)) {
            return std::nullopt;
        }
        return std::string(buffer.GetString(), buffer.GetSize());
    }
    static bool read(std::string_view text, rapidjson::Document &document) {
        document.Parse(text.data(), text.size());
        return !document.HasParseError();
    }
};
#endif

} // namespace v1
} // namespace hearth

#ifdef HEARTH_HAS_NLOHMANN
#undef HEARTH_HAS_NLOHMANN
#endif
#ifdef HEARTH_HAS_RAPIDJSON
#undef HEARTH_HAS_RAPIDJSON
#endif
