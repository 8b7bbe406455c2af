// Calls for valgrind, over HTTP and TLS: memcheck URL URL. Ends with 0 if each has an answer with 200.
#include <hearth/http.hpp>

int main(int count, char **words) {
    hearth::async engine;
    engine.start();
    int bad = 0;
    for (int at = 1; at < count; ++at) {
        const auto one = hearth::http::create(engine);
        bad += one->GET(words[at]).insecure().exec().get_code() == 200 ? 0 : 1;
        bad += one->GET(words[at]).insecure().launch().get().code() == 200 ? 0 : 1;
    }
    engine.stop();
    return bad;
}
