#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "rdkafka.h"
static double now(){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e3+t.tv_nsec/1e6;}
static void dr(rd_kafka_t*r,const rd_kafka_message_t*m,void*o){}
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
int main(int c,char**v){int ev=atoi(v[2]);char e[512];rd_kafka_conf_t*k=rd_kafka_conf_new();
#define S(a,b) if(rd_kafka_conf_set(k,a,b,e,512)){puts(e);exit(1);}
S("bootstrap.servers",v[1]);S("transactional.id",ev?"ev":"cb");S("delivery.report.only.error","true");S("linger.ms","20");S("retry.backoff.ms","10");
if(ev)rd_kafka_conf_set_events(k,RD_KAFKA_EVENT_DR);else rd_kafka_conf_set_dr_msg_cb(k,dr);
rd_kafka_t*r=rd_kafka_new(RD_KAFKA_PRODUCER,k,e,512);rd_kafka_topic_t*t=rd_kafka_topic_new(r,"flushtest",NULL);
rd_kafka_error_t*x;while((x=rd_kafka_init_transactions(r,10000))){puts(rd_kafka_error_string(x));}
double f[200];for(int i=0;i<200;i++){rd_kafka_begin_transaction(r);for(int j=0;j<200;j++)rd_kafka_produceva(r,(rd_kafka_vu_t[]){{RD_KAFKA_VTYPE_RKT,{.rkt=t}},{RD_KAFKA_VTYPE_PARTITION,{.i32=0}},{RD_KAFKA_VTYPE_MSGFLAGS,{.i=RD_KAFKA_MSG_F_COPY}},{RD_KAFKA_VTYPE_VALUE,{.mem={"hello",5}}}},4);
double a=now();int err;while((err=rd_kafka_flush(r,1000)));f[i]=now()-a;if((x=rd_kafka_commit_transaction(r,10000)))puts(rd_kafka_error_string(x));}
qsort(f,200,8,cmp);printf("%s: flush p50 %.2f ms p90 %.2f p99 %.2f\n",ev?"events":"callback",f[100],f[180],f[198]);rd_kafka_topic_destroy(t);rd_kafka_destroy(r);}
