-- For nginx.conf, with Debian's libnginx-mod-http-lua: keeps what the gateway has answered, and connects to where it leads.
-- What the gateway decides by is in $gateway_question: an answer counts for the same question in the same half second, by nginx'
-- own clock. One table, in the memory of this worker, holds those of the current one and is dropped with it.

local set_current_peer = require("ngx.balancer").set_current_peer

-- The most answers, and the most characters of a question that is remembered: some 20 MB at the worst. Beyond, nginx asks.
local MOST, LONGEST = 10000, 1024

local half_second, answers, count

local function current()
  local now = math.floor(ngx.now() * 2)
  if now ~= half_second or count >= MOST then
    half_second, answers, count = now, {}, 0
  end
  return answers
end

-- Carries a request at once whose question has been answered; the others go on to auth_request.
local function find()
  local var, known = ngx.var, current()
  -- Whether a request goes round is asked about each.
  local answer = not var.http_via and known[var.gateway_question]
  if answer then
    var.gateway_to, var.gateway_via, var.gateway_api_key = answer.to, answer.via, answer.api_key
    return ngx.exec("@envd_carry")
  end
  -- The answer is for this half second, even if it comes in the next.
  ngx.ctx.known = known
end

-- Keeps the answer that auth_request has got, if the gateway allows that.
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
