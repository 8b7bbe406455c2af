-- Makes wrk end with one line of JSON. Times are in microseconds. With an argument, requests are POSTs with that many bytes.
function init(arguments)
   if arguments[1] then
      wrk.method = "POST"
      wrk.body = string.rep("x", tonumber(arguments[1]))
      wrk.headers["Content-Type"] = "application/octet-stream"
   end
end

done = function(summary, latency)
   local e = summary.errors
   io.write(string.format('{"requests":%d,"duration":%d,"p50":%d,"p99":%d,"errors":%d}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      e.connect + e.read + e.write + e.status + e.timeout))
end
