import { Hono, type Context } from 'hono'
import { ingestHttpContract } from '../../test/contract/ingest-http-contract.ts'
import { listen, nodeListener } from '../../test/integrations/listen.ts'
import { honoIngest } from './hono.ts'

const principal = (context: Context): string | undefined => context.req.header('x-user')

ingestHttpContract('hono', async ({ open, own, slow }) => {
  const app = new Hono()
  app.all('/readings/*', honoIngest(open, { path: '/readings' }))
  app.all('/own/readings/*', honoIngest(own, { path: '/own/readings', principal, scope: 'principal' }))
  app.all('/slow/*', honoIngest(slow, { path: '/slow' }))
  return await listen(nodeListener((request) => app.fetch(request)))
})
