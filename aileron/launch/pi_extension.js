// What pi loads when Aileron starts it: registers the server and, where there is a gateway, its address. Writes nothing.
// Reads AILERON_PI (pi.py says what is in it) and, for a key that the vault has, AILERON_SESSION_TOKEN.

export default function (pi) {
  const told = JSON.parse(process.env.AILERON_PI ?? "null");
  if (told === null) return;
  if (typeof pi.registerMcpServer !== "function") {
    // npm gives whoever has an older node an older pi, and says nothing.
    throw new Error("this pi knows no MCP servers: pi 1.0 or newer is needed, and for that node 22.19 or newer");
  }
  pi.registerMcpServer(told.name, told.server);
  for (const [provider, { baseUrl, keyFromToken }] of Object.entries(told.providers)) {
    const token = process.env.AILERON_SESSION_TOKEN;
    // As a header too: a key that pi has stored counts for more than one that an extension gives.
    const header = provider === "anthropic" ? { "x-api-key": token } : { Authorization: `Bearer ${token}` };
    pi.registerProvider(provider, keyFromToken ? { baseUrl, apiKey: token, headers: header } : { baseUrl });
  }
}
