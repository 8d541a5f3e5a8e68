// A metadata service in a guest: returns the JSON in the file argv[2] for the token that it has issued.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const TOKEN = 'session-token';

createServer(({ method, url, headers }, response) => {
  if (method === 'PUT' && url === '/latest/api/token' && headers['x-metadata-token-ttl-seconds']) {
    response.end(TOKEN);
  } else if (headers['x-metadata-token'] === TOKEN) {
    response.end(readFileSync(process.argv[2]));
  } else {
    response.writeHead(401).end();
  }
}).listen(80, '169.254.169.254');
