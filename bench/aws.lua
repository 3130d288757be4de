-- Sends one request again and again: BENCH_METHOD, BENCH_PATH, BENCH_BODY, and BENCH_HEADERS with one header a line. Ends with one line
-- of JSON.

local headers = {}
for line in (os.getenv("BENCH_HEADERS") or ""):gmatch("[^\n]+") do
   local name, value = line:match("^([^:]+): (.*)$")
   headers[name] = value
end
local body = os.getenv("BENCH_BODY")
local method, path = os.getenv("BENCH_METHOD"), os.getenv("BENCH_PATH")

function request()
   return wrk.format(method, path, headers, body ~= "" and body or nil)
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      'RESULT {"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"refused":%d,"broken":%d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
