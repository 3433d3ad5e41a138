import { fastify, type FastifyRequest } from 'fastify'
import { ingestHttpContract } from '../../test/contract/ingest-http-contract.ts'
import { fastifyIngest, type FastifyIngestRequest, type FastifyReplyLike } from './fastify.ts'

const principal = (request: FastifyRequest): string | undefined => request.headers['x-user'] as string | undefined

ingestHttpContract('fastify', async ({ open, own, slow }) => {
  const app = fastify({ bodyLimit: open.limits.maxBodyBytes })
  const mount = (path: string, handler: (request: FastifyRequest, reply: FastifyReplyLike) => Promise<unknown>): void => {
    for (const url of [path, `${path}/*`]) app.all(url, handler)
  }
  mount(
    '/readings',
    fastifyIngest<FastifyIngestRequest>(open, { path: '/readings', allowedOrigins: ['https://app.example.com'] }),
  )
  mount('/own/readings', fastifyIngest(own, { path: '/own/readings', principal, scope: 'principal' }))
  mount('/slow', fastifyIngest(slow, { path: '/slow' }))
  return { url: await app.listen({ port: 0, host: '127.0.0.1' }), close: () => app.close() }
})
