-- nginx.conf uses this with Debian's libnginx-mod-http-lua. It keeps the gateway's answers, and connects to where they lead.
-- $gateway_question has all that the gateway decides by. An answer is valid for the same question in the same half second, by
-- nginx' own clock. One table in the memory of this worker has the answers of the current half second.

local set_current_peer = require("ngx.balancer").set_current_peer

-- So many answers are kept, for questions of at most so many characters, which takes at most some 20 MB. Beyond, nginx asks.
local MOST, LONGEST = 10000, 1024

local half_second, answers, count

local function current()
  local now = math.floor(ngx.now() * 2)
  if now ~= half_second or count >= MOST then
    half_second, answers, count = now, {}, 0
  end
  return answers
end

-- Passes a request on at once if its question was answered. Other requests continue to auth_request.
local function find()
  local var, known = ngx.var, current()
  -- Whether a request goes in a circle must be asked for each request.
  local answer = not var.http_via and known[var.gateway_question]
  if answer then
    var.gateway_to, var.gateway_via, var.gateway_api_key = answer.to, answer.via, answer.api_key
    return ngx.exec("@envd_carry")
  end
  -- The answer belongs to this half second, even if it arrives in the next one.
  ngx.ctx.known = known
end

-- Keeps the answer that auth_request got, if the gateway allows that.
local function keep()
  local var, question = ngx.var, ngx.var.gateway_question
  if (var.gateway_keep or "") == "" or #question > LONGEST then
    return
  end
  count = count + 1
  ngx.ctx.known[question] = { to = var.gateway_to, via = var.gateway_via, api_key = var.gateway_api_key }
end

local function connect()
  local address, port = ngx.var.gateway_to:match("^(.+):(%d+)$")
  assert(set_current_peer(address, tonumber(port)))
end

return { find = find, keep = keep, connect = connect }
