-- Creates as fast as they are accepted: each request declares one cluster under a name that no other request has.
-- BENCH_TARGET is `kube` or `berth`, BENCH_TOKEN a bearer token, BENCH_PREFIX the names' beginning. Ends with one line of JSON.

local target = os.getenv("BENCH_TARGET")
local prefix = os.getenv("BENCH_PREFIX")
local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN") }

local threads = 0
function setup(thread)
   threads = threads + 1
   thread:set("id", threads)
end

local count = 0

-- The manifest is the same on both sides but for what each calls the place that an object lives in.
local place = { kube = '"namespace":"default"', berth = '"org":"shop","env":"prod"' }
local manifest = '{"apiVersion":"civo.berth.dev/v1","kind":"CivoKubernetesCluster","metadata":{"name":"%s",' .. place[target] ..
   ',"labels":{"team":"shop","tier":"bench"},"annotations":{"note":"made by the benchmark, to be forgotten"}},' ..
   '"spec":{"clusterName":"%s","region":"fra1","kubernetesVersion":"1.30.5-k3s1","network":{"value":"7c1f4a52-1b0e-4f0e-9a55-3f0c2a9d1e77"},' ..
   '"defaultNodePool":{"size":"g4s.kube.medium","nodeCount":3},"cni":"cilium","tags":["web","bench"],"applications":["metrics-server"],' ..
   '"additionalNodePools":[{"name":"batch","size":"g4s.kube.large","nodeCount":2,"autoScale":true,"minNodes":1,"maxNodes":5,' ..
   '"labels":{"workload":"batch"},"taints":[{"key":"dedicated","value":"batch","effect":"NoSchedule"}]}]}}'

function request()
   count = count + 1
   local name = string.format("%s-%d-%d", prefix, id, count)
   local body = string.format(manifest, name, name)
   if target == "kube" then
      return wrk.format("POST", "/apis/civo.berth.dev/v1/namespaces/default/civokubernetesclusters", headers, body)
   end
   body = '{"files":[{"name":"bench.json","text":"' .. body:gsub('"', '\\"') .. '"}]}'
   return wrk.format("POST", "/v1/resources", headers, body)
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      'RESULT {"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f,"refused":%d,"broken":%d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      latency.max / 1e3, errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
