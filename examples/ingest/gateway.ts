/**
 * The gateway's process: passes requests on, and knows nothing. A service that does not answer is a 502, whatever became of the
 * request there.
 */
import { fastify } from 'fastify'

const { PORT = '0', SERVICE_URL = '' } = process.env
const app = fastify({ bodyLimit: 2_000_000, forceCloseConnections: true })
app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
app.all('/*', async (request, reply) => {
  const { method, url, body } = request
  try {
    const answer = await fetch(`${SERVICE_URL}${url}`, {
      method,
      ...(body instanceof Buffer ? { body: new Uint8Array(body), headers: { 'content-type': 'application/json' } } : {}),
    })
    for (const name of ['content-type', 'retry-after']) {
      const value = answer.headers.get(name)
      if (value !== null) reply.header(name, value)
    }
    return await reply.code(answer.status).send(Buffer.from(await answer.arrayBuffer()))
  } catch {
    return await reply.code(502).send({ title: 'The service did not answer' })
  }
})
await app.listen({ port: Number(PORT), host: '127.0.0.1' })
process.send?.('ready')
process.once('SIGTERM', () => void app.close().then(() => process.disconnect?.()))
