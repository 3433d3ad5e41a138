import { Hono, type Context } from 'hono'
import { ingestHttpContract } from '../../test/contract/ingest-http-contract.ts'
import { listen, nodeListener } from '../../test/integrations/listen.ts'
import { honoIngest } from './hono.ts'

const principal = (context: Context): string | undefined => context.req.header('x-user')

type Services = Parameters<Parameters<typeof ingestHttpContract>[1]>[0]

function serve(app: Hono, { open, own, slow }: Services): ReturnType<typeof listen> {
  app.all('/readings/*', honoIngest(open, { path: '/readings', allowedOrigins: ['https://app.example.com'] }))
  app.all('/own/readings/*', honoIngest(own, { path: '/own/readings', principal, scope: 'principal' }))
  app.all('/slow/*', honoIngest(slow, { path: '/slow' }))
  return listen(nodeListener((request) => app.fetch(request)))
}

ingestHttpContract('hono', async (services) => await serve(new Hono(), services))

ingestHttpContract('hono behind a middleware that reads the body', async (services) => {
  const app = new Hono()
  app.use(async (context, next) => {
    await context.req.text()
    await next()
  })
  return await serve(app, services)
})
