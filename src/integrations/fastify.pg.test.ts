import { fastify, type FastifyRequest } from 'fastify'
import { commandHttpContract, listedOrigin } from '../../test/contract/command-http-contract.ts'
import { fastifyCommand } from './fastify.ts'
import { readTokenHeader } from './fetch.ts'

const principal = (request: FastifyRequest): string | undefined => String(request.headers['x-user'] ?? '') || undefined

await commandHttpContract('fastify', async ({ commands, deposit, note }) => {
  const app = fastify()
  app.post('/deposit', fastifyCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] }))
  app.post('/note', fastifyCommand(commands, note, { principal, status: 201 }))
  app.get('/token', async (request) => readTokenHeader(request.headers))
  return { url: await app.listen({ port: 0, host: '127.0.0.1' }), close: () => app.close() }
})
